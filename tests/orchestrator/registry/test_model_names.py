"""What names lead to: registered models, paths, and folders that only look like one.

Alone: pytest tests/orchestrator/registry/test_model_names.py
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.results import ModelResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.execution.launch_folder import with_absolute_paths
from orchestrator.registry import Registry
from orchestrator.registry.model_names import content_digest, pin_names, pretrained_models, resolve_name
from orchestrator.specs import EvaluateSpec
from orchestrator.storage import local_copy
from tests.hub_server import serving_hub


def pinned(model: str, settings: Settings, **fields: str) -> EvaluateSpec:
    spec = EvaluateSpec.model_validate({"model": model, "task": {"id": "sst2"}, **fields})
    return pin_names(spec, settings, partial(resolve_name, settings=settings))


def as_meant_here(model: str) -> str:
    spec = EvaluateSpec.model_validate({"model": model, "task": {"id": "sst2"}})
    return with_absolute_paths(spec).model


def save_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A laboratory on a `file://` storage with the registered model `base`."""
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = Settings.from_options(home=str(tmp_path / "home"), storage=f"file://{tmp_path}/lab", environ={})
    with Registry(settings.registry) as registry:
        run = registry.lifecycle.create(kind="pretrain", name="base", fingerprint="f" * 64, spec={})
        model = ModelResult(f"{settings.storage}/model", "d" * 64, 1, "pretraining")
        registry.models.register("base", model, run)
    save_model(tmp_path / "lab" / "model")
    return settings


def test_a_registered_model_on_a_file_uri_is_found_and_pinned(settings: Settings, tmp_path: Path) -> None:
    assert resolve_name("model", "base", settings) == f"{tmp_path}/lab/model"
    assert pinned("base", settings).model == "base@1"


def test_a_model_that_reranks_is_pinned_too(settings: Settings) -> None:
    assert pinned("base", settings, rerank="base").rerank == "base@1"


def test_a_folder_of_notes_does_not_hide_the_registered_model(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "place" / "base").mkdir()
    assert resolve_name("init_from", "base", settings) == f"{tmp_path}/lab/model"
    assert pinned("base", settings).model == "base@1"
    assert as_meant_here("base") == "base"


def test_a_name_that_means_several_things_is_refused_with_all_of_them(settings: Settings, tmp_path: Path) -> None:
    save_model(tmp_path / "place" / "base")
    with serving_hub(tmp_path) as hub:
        hub.commit("base", {"config.json": b"{}"})
        local_copy("hf://base", skip=("model.safetensors",))
        hub.asked.clear()
        with pytest.raises(InputError, match=r"\./base or base@1 or hf://base"):
            resolve_name("init_from", "base", settings)
        assert resolve_name("init_from", "./base", settings) == f"{tmp_path}/place/base"
        assert resolve_name("init_from", "base@1", settings) == f"{tmp_path}/lab/model"
        assert as_meant_here("base") == f"{tmp_path}/place/base"
        assert not hub.asked, "what is here needs no network"


def test_a_name_on_the_hub_is_pinned_to_its_commit(settings: Settings, tmp_path: Path) -> None:
    with serving_hub(tmp_path) as hub:
        first = f"hf://org/name@{hub.commit('org/name', {'config.json': b'{}'})}"
        assert pinned("org/name", settings, rerank="org/name@main").rerank == first
        recorded = pinned("org/name", settings)
        second = hub.commit("org/name", {"config.json": b"{} "})
        assert recorded.model == pinned(recorded.model, settings).model == first
        assert resolve_name("tokenizer", "org/name", settings) == f"hf://org/name@{second}"
        for name in ("org/nmae", "no name"):
            with pytest.raises(NotFoundError, match=name):
                resolve_name("init_from", name, settings)


def test_a_tilde_is_the_home_folder(settings: Settings, tmp_path: Path) -> None:
    save_model(tmp_path / "mine")
    assert resolve_name("model", "~/mine", settings) == f"{tmp_path}/mine"
    assert as_meant_here("~/mine") == f"{tmp_path}/mine"
    with pytest.raises(NotFoundError, match="~/nothing"):
        resolve_name("model", "~/nothing", settings)


def test_a_tokenizers_digest_covers_the_merges_beside_its_vocabulary(tmp_path: Path) -> None:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "he"]
    digests = set()
    for merge in ("t h", "h e", "t h"):
        (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merge}\n")
        digests.add(content_digest("tokenizer", str(tmp_path)))
    assert len(digests) == 2


def test_the_files_of_a_home_that_was_moved_are_found_below_the_new_one(tmp_path: Path) -> None:
    old, new = (Settings.from_options(home=str(tmp_path / name), environ={}) for name in ("old", "new"))
    old.home.mkdir()
    with Registry(old.registry) as registry:
        folder = f"{old.storage}/runs"
        run = registry.lifecycle.create(kind="pretrain", name="base", fingerprint="f", spec={}, run_id="a" * 12)
        registry.models.register("base", ModelResult(f"{folder}/{run}/model", "d" * 64, 1, "pretraining"), run)
        registry.lifecycle.finish(run, RunState.COMPLETED, model_folder=f"{folder}/{run}/model")
    save_model(Path(f"{folder}/{run}/model"))
    old.home.rename(new.home)
    for name in ("base", run):
        assert resolve_name("model", name, new) == f"{new.storage}/runs/{run}/model"
    assert pinned("base", new).model == "base@1"
    with Registry(new.registry, read_only=True) as registry:
        assert registry.run(run).folder(new.storage) == f"{new.storage}/runs/{run}"
    elsewhere = replace(new, storage=str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=f"{elsewhere.storage}.*--storage"):
        resolve_name("model", "base", elsewhere)


def test_pretrained_models_are_listed_and_fine_tuned_ones_are_not(tmp_path: Path) -> None:
    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    settings.home.mkdir()
    with Registry(settings.registry) as registry:
        registry.models.register("wiki", ModelResult("a", "d" * 64, 100, "pretraining"))
        registry.models.register("reviews", ModelResult("b", "e" * 64, 100, "classification"))
    assert pretrained_models(settings) == ("wiki",)

"""Models and data by their names on the hub, as commands take them.

Alone: pytest tests/orchestrator/cli/test_hub_names.py
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from bert_core import BertConfig, BertForPreTraining
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.storage.hub import MOST_BYTES
from tests.contracts.imports import ROOT
from tests.hub_server import Hub, serving_hub
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.tiny_models import save_encoder
from tests.waiting import PATIENCE_S

TINY = "google/bert_uncased_L-2_H-128_A-2"
WORDS = ("bad dull long", "good charming warm", "the film plot story was a it")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with a small model of each kind."""
    tokenizer = train_wordpiece([" ".join(WORDS)] * 3, vocab_size=200, min_frequency=1)
    config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size)
    BertForPreTraining.from_config(config, seed=1).save_pretrained(tmp_path / "tiny")
    tokenizer.save(tmp_path / "tiny")
    save_encoder(tmp_path / "embedder", seed=3)
    with serving_hub(tmp_path / "cache") as hub:
        hub.commit_folder(TINY, tmp_path / "tiny")
        hub.commit_folder("org/embedder", tmp_path / "embedder")
        yield hub


def test_a_drafted_spec_starts_from_a_name_and_its_plan_fetches_no_weights(
    command: Command, hub: Hub, tmp_path: Path
) -> None:
    rows = [f"{good} {noun},{label}" for label in ("good", "bad") for good in WORDS for noun in WORDS[2].split()]
    (tmp_path / "mine.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    drafted = command("init", "mine.csv", "--model", TINY)
    assert drafted.status == 0, drafted.err
    assert command("plan", "mine.yaml").status == 0
    assert not [path for path in hub.asked if path.endswith("model.safetensors")]
    hub.claimed_bytes = MOST_BYTES + 1
    hub.commit("org/large", hub.repositories[TINY].commits[hub.repositories[TINY].head])
    for words in (("plan", "mine.yaml"), ("run", "mine.yaml")):
        refused = command(*words, "recipe.init_from=org/large")
        assert (refused.status, refused.out) == (2, "")
        assert "8.59 GB" in refused.err
    assert command("init", "mine.csv", "--model", "org/large", "-o", "large.yaml").status == 2
    assert not (tmp_path / "large.yaml").exists()
    constants.HF_HUB_OFFLINE = True  # until the hub goes
    assert command("plan", "mine.yaml").status == 0
    assert command("plan", "mine.yaml", "recipe.init_from=org/embedder").status == 3


def test_a_name_can_be_used_as_a_folder_is(command: Command, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("cats rest on the mat\n")
    by_name, by_folder = (command("embed", name, "lines.txt") for name in ("org/embedder", str(tmp_path / "embedder")))
    assert by_name.status == 0, by_name.err
    assert by_name.out == by_folder.out
    assert command("fill-mask", f"hf://{TINY}", "the [MASK]").status == 0
    assert command("tokenizer", "report", TINY, "lines.txt").status == 0
    hub.commit("org/mine", {}, refusal="RepoNotFound")
    hub.commit("org/terms", {}, refusal="GatedRepo")
    for name, status in (("org/nmae", 3), ("org/mine", 3), ("org/terms", 2), (f"{TINY}@v9", 3)):
        refused = command("embed", name, "lines.txt")
        assert (refused.status, refused.out) == (status, "")
        assert name.partition("@")[0] in refused.err


@pytest.mark.runs
@pytest.mark.core
def test_an_experiment_runs_where_nothing_was_before(home: Path, hub: Hub, tmp_path: Path) -> None:
    draw = random.Random(0)
    marked = [(draw.choice(WORDS[label].split()), label) for label in (1, 0) * 200]
    texts = [" ".join([mark, *draw.choices(WORDS[2].split(), k=4)]) for mark, _ in marked]
    hub.commit_task("sst2", sentence=texts, label=[label for _, label in marked])
    wishes = ["seeds=[0]", "space.learning_rate=[0.003]", "recipe.epochs=1", "recipe.max_seq_length=16"]
    command = [sys.executable, "-m", "orchestrator", "run", str(ROOT / "experiments" / "sweep_sst2.yaml"), *wishes]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    start = f"hf://{TINY}@{hub.repositories[TINY].head}"
    with Registry(Settings.from_options(home=str(home)).registry) as registry:
        run = registry.run(done.stdout.strip())
        assert run.spec["space"]["init_from"] == [start, "random"]
        assert run.spec["recipe"]["tokenizer"] == start
        assert registry.metrics.latest(run.id)["accuracy"] > 0.9
        assert start in str(registry.lineage.tree("sweep_sst2"))

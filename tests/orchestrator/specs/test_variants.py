"""Variants of a stage: what they unfold into, refusals. Alone: pytest tests/orchestrator/specs/test_variants.py"""

from pathlib import Path

import pytest

from orchestrator.base.errors import SpecError
from orchestrator.specs import PipelineSpec, PretrainSpec, SweepSpec
from orchestrator.specs.loading import load_spec, parse_spec, spec_values
from orchestrator.specs.references import names_of

BASE = "kind: pretrain\ncorpus:\n  files: [a.txt]\ntokenizer: tok\nsteps: 10\nmodel: {size: tiny}\n"
PIPELINE = """\
kind: pipeline
stages:
  encoder:
    extends: base.yaml
    variants:
      tokens: {}
      words: {mask_unit: word}
      borders:
        mask_unit: span
        model.span_boundary_objective: true
  ner:
    kind: sweep
    task: {id: conll2003, folder: data}
    recipe: {tokenizer: tok}
    space: {init_from: ["@encoder", random], learning_rate: [1.0e-4]}
"""
NAMES = ["encoder.tokens", "encoder.words", "encoder.borders"]


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    path = tmp_path / "ablation.yaml"
    path.write_text(PIPELINE)
    return path


def load(path: Path, *overrides: str) -> PipelineSpec:
    spec = load_spec(path, overrides)
    assert isinstance(spec, PipelineSpec)
    return spec


def encoder(spec: PipelineSpec, variant: str) -> PretrainSpec:
    stage = spec.stages[f"encoder.{variant}"]
    assert isinstance(stage, PretrainSpec)
    return stage


def sweep(spec: PipelineSpec) -> SweepSpec:
    stage = spec.stages["ner"]
    assert isinstance(stage, SweepSpec)
    return stage


def test_a_stage_becomes_one_per_variant_in_its_place(pipeline: Path) -> None:
    spec = load(pipeline)
    assert list(spec.stages) == [*NAMES, "ner"]
    plain, borders = encoder(spec, "tokens"), encoder(spec, "borders")
    model = plain.model.model_copy(update={"span_boundary_objective": True})
    assert borders == plain.model_copy(update={"mask_unit": "span", "model": model})


def test_a_stage_name_in_a_list_stands_for_all_its_variants(pipeline: Path) -> None:
    listed = tuple(f"@{name}" for name in NAMES)
    assert sweep(load(pipeline)).space["init_from"] == (*listed, "random")
    chosen = sweep(load(pipeline, 'stages.ner.space.init_from={choice: ["@encoder"]}'))
    assert spec_values(chosen)["space"]["init_from"] == {"choice": list(listed)}
    assert sweep(load(pipeline, 'stages.ner.space.init_from=["@encoder.words"]')).space["init_from"] == (listed[1],)


def test_a_stage_name_means_a_stage_only_where_names_of_models_stand(pipeline: Path) -> None:
    spec = load(pipeline, 'stages.encoder.tags=["@encoder"]', "stages.ner.name=@encoder")
    assert encoder(spec, "words").tags == ("@encoder",)
    assert sweep(spec).name == "@encoder"


def test_overrides_reach_all_variants_or_one(pipeline: Path) -> None:
    spec = load(pipeline, "stages.encoder.steps=100", "stages.encoder.variants.words.steps=50")
    assert [encoder(spec, name).steps for name in ("tokens", "words", "borders")] == [100, 50, 100]
    spec = load(pipeline, "stages.encoder.variants.borders.model.size=mini", "stages.encoder.model.size=small")
    assert [encoder(spec, name).model.size for name in ("tokens", "borders")] == ["small", "mini"]
    assert encoder(spec, "borders").model.span_boundary_objective


def test_an_override_makes_a_variant_and_null_leaves_one_out(pipeline: Path) -> None:
    spec = load(pipeline, "stages.encoder.variants.order={sentence_objective: sentence_order}")
    assert list(spec.stages)[:4] == [*NAMES, "encoder.order"]
    without = load(pipeline, "stages.encoder.variants.words=null")
    assert list(without.stages) == ["encoder.tokens", "encoder.borders", "ner"]
    assert sweep(without).space["init_from"] == ("@encoder.tokens", "@encoder.borders", "random")


def test_a_pipeline_that_extends_another_changes_its_variants(pipeline: Path) -> None:
    child = pipeline.with_name("child.yaml")
    child.write_text("extends: ablation.yaml\nstages:\n  encoder:\n    variants: {tokens: null, words: {steps: 5}}\n")
    spec = load(child)
    assert list(spec.stages) == ["encoder.words", "encoder.borders", "ner"]
    assert (encoder(spec, "words").steps, encoder(spec, "words").mask_unit) == (5, "word")


def test_variants_of_a_named_stage_are_told_apart(pipeline: Path) -> None:
    spec = load(pipeline, "stages.encoder.name=mine", "stages.encoder.variants.words.name=whole")
    assert [encoder(spec, name).name for name in ("tokens", "words")] == ["mine.tokens", "whole"]


def test_a_later_stage_has_variants_of_its_own_that_use_an_earlier_ones(pipeline: Path) -> None:
    spec = load(pipeline, 'stages.ner.variants={a: {recipe.init_from: "@encoder.words", space: {init_from: null}}}')
    stage = spec.stages["ner.a"]
    assert isinstance(stage, SweepSpec)
    assert (stage.recipe.init_from, list(stage.space)) == ("@encoder.words", ["learning_rate"])


def test_only_a_changed_variant_has_another_fingerprint(pipeline: Path) -> None:
    before, after = load(pipeline), load(pipeline, "stages.encoder.variants.words.seed=1")
    changed = [name for name in before.stages if before.stages[name].fingerprint() != after.stages[name].fingerprint()]
    assert changed == ["encoder.words"]


def test_an_unfolded_pipeline_survives_the_way_through_plain_values(pipeline: Path) -> None:
    spec = load(pipeline)
    assert parse_spec(spec_values(spec)) == spec


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("stages.encoder.variants.words.stepz=5", "stages.encoder.words.stepz"),
        ("stages.encoder.variants.words.model.size=bse", "size=bse: stages.encoder.words.model.size"),
        ("stages.encoder.variants.wrods=null", "stages.encoder.variants.wrods"),
        ("stages.encoder.variants.words=5", "words=5: stages.encoder.variants.words"),
        ("stages.encoder.variants={w.5: {steps: 5}}", "stages.encoder.variants has 'w.5'"),
        ("stages.encoder.variants={'': {steps: 5}}", "stages.encoder.variants has ''"),
        ("stages.encoder.variants=[words]", "stages.encoder.variants is ['words']"),
        ("stages.encoder.variants.same={mask_unit: token}", "stages.encoder.same asks for what stages.encoder.tokens"),
        ("stages.encoder.variants.words.variants={}", "stages.encoder.words.variants"),
        ("stages.ner.recipe.init_from=@encoder", "init_from=@encoder: stages.ner.recipe.init_from is '@encoder'"),
        ("stages.encoder.variants.borders.mask_unit=word", "ablation.yaml:10: stages.encoder.borders"),
    ],
)
def test_a_broken_variant_is_named_with_its_place(pipeline: Path, override: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(pipeline, override)
    assert place in str(caught.value)


def test_a_variant_does_not_stand_for_another_stage(pipeline: Path) -> None:
    pipeline.write_text(PIPELINE + "  encoder.words: {extends: base.yaml}\n")
    with pytest.raises(SpecError, match=r"encoder\.words"):
        load(pipeline)


def test_a_stage_without_any_variant_left_is_refused(pipeline: Path) -> None:
    with pytest.raises(SpecError, match=r"ablation\.yaml:5: stages\.encoder\.variants"):
        load(pipeline, *(f"stages.encoder.variants.{name}=null" for name in ("tokens", "words", "borders")))


SEEDED = ("stages.encoder.seeds=[0, 1]", "stages.ner.seeds=[0, 1]")


def test_a_pretraining_becomes_a_stage_for_each_seed_and_a_sweep_starts_seed_by_seed(pipeline: Path) -> None:
    spec = load(pipeline, *SEEDED)
    assert list(spec.stages) == [f"{name}.{seed}" for name in NAMES for seed in (0, 1)] + ["ner"]
    assert [encoder(spec, f"words.{seed}").seed for seed in (0, 1)] == [0, 1]
    starts = [f"@{name}.0 | @{name}.1" for name in NAMES]
    assert sweep(spec).space["init_from"] == (*starts, "random")
    assert [name for _, name in names_of(sweep(spec))][1:3] == ["@encoder.tokens.0", "@encoder.tokens.1"]
    alone = load(pipeline, *SEEDED, "stages.ner.space={}", "stages.ner.recipe.init_from=@encoder.words")
    assert sweep(alone).recipe.init_from == "@encoder.words.0 | @encoder.words.1"


def test_a_pretraining_with_seeds_goes_on_from_another_one_seed_by_seed(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    path = tmp_path / "two.yaml"
    first, second = "first: {extends: base.yaml, seeds: [3, 4]}", 'second: {extends: base.yaml, init_from: "@first", '
    path.write_text(f"kind: pipeline\nstages:\n  {first}\n  {second}seeds: [4, 3]}}\n")
    starts = {name: stage.init_from for name, stage in load(path).stages.items() if isinstance(stage, PretrainSpec)}
    assert starts == {"first.3": "random", "first.4": "random", "second.4": "@first.4", "second.3": "@first.3"}


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["stages.encoder.seeds=[0, 1]"], "init_from @encoder.tokens.0 | @encoder.tokens.1"),
        ([*SEEDED, 'stages.ner.space.init_from=["@encoder.words.0 | random"]'], "init_from @encoder.words.0 | random"),
        (["stages.encoder.seeds=3", "stages.ner.seeds=[0, 1]"], "stages.encoder.tokens.seeds is 3"),
        (["stages.encoder.seeds=[[0]]"], "stages.encoder.tokens.seeds is [[0]]"),
        (["stages.encoder.seeds=[0, 0]"], "stages.encoder.tokens.seeds is [0, 0]"),
        ([*SEEDED, "stages.ner.recipe.tokenizer=@encoder.words"], "@encoder.words.0, @encoder.words.1"),
    ],
)
def test_starts_that_do_not_match_the_seeds_are_refused(pipeline: Path, overrides: list[str], told: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(pipeline, *overrides)
    assert told in str(refused.value)

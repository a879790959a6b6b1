"""Specs from files: extends, overrides, messages, back again. Alone: pytest tests/orchestrator/specs/test_loading.py"""

from pathlib import Path

import pytest

from orchestrator.base.errors import SpecError
from orchestrator.specs import PipelineSpec, PretrainSpec, SweepSpec
from orchestrator.specs.loading import load_spec, load_task_spec, parse_spec, spec_values

PRETRAIN = "kind: pretrain\ncorpus:\n  files: [a.txt]\ntokenizer: tok\nsteps: 10\n"
SWEEP = "kind: sweep\ntask: {id: sst2, folder: data}\nrecipe:\n  init_from: pretrained\nspace:\n  batch_size: [8, 16]\n"


def write(folder: Path, text: str, name: str = "spec.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_name_is_the_files_unless_given(tmp_path: Path) -> None:
    assert load_spec(write(tmp_path, PRETRAIN, "first_try.yaml")).name == "first_try"
    assert load_spec(write(tmp_path, PRETRAIN + "name: mine\n")).name == "mine"


def test_overrides_are_dotted_paths_with_yaml_values(tmp_path: Path) -> None:
    path = write(tmp_path, PRETRAIN)
    spec = load_spec(path, ["learning_rate=1e-3", "model.size=mini", "corpus.files=[b.txt]", "corpus.files.0=c.txt"])
    assert isinstance(spec, PretrainSpec)
    assert (spec.learning_rate, spec.model.size, spec.corpus.files) == (1e-3, "mini", ("c.txt",))
    assert spec == load_spec(path, {"learning_rate": 1e-3, "model": {"size": "mini"}, "corpus.files": ["c.txt"]})


def test_an_override_of_an_aliased_value_reaches_the_place_it_names_alone(tmp_path: Path) -> None:
    stage = "{kind: sweep, task: {id: sst2, folder: data}, recipe: {tokenizer: t}, space: SPACE}\n"
    text = "kind: pipeline\nstages:\n" + "".join(
        f"  {name}: {stage.replace('SPACE', space)}" for name, space in (("a", "&both {epochs: [1]}"), ("b", "*both"))
    )
    spec = load_spec(write(tmp_path, text), ["stages.b.space.epochs.0=2"])
    assert [stage["space"] for stage in spec_values(spec)["stages"].values()] == [{"epochs": [1]}, {"epochs": [2]}]


def test_extends_merges_mappings_and_replaces_lists(tmp_path: Path) -> None:
    write(tmp_path, SWEEP.replace("pretrained", "other\n  epochs: 5") + "seeds: [1, 2]\n", "base.yaml")
    spec = load_spec(write(tmp_path, "extends: base.yaml\nrecipe: {batch_size: 64}\nseeds: [3]\n"))
    assert isinstance(spec, SweepSpec)
    assert (spec.recipe.epochs, spec.recipe.batch_size, spec.seeds) == (5.0, 64, (3,))
    assert spec.name == "spec"


def test_extends_is_relative_to_the_file_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, PRETRAIN, "base.yaml")
    write(tmp_path / "sub", "extends: ../base.yaml\n", "middle.yaml")
    write(tmp_path / "sub", "extends: middle.yaml\nsteps: 20\n", "top.yaml")
    monkeypatch.chdir(tmp_path / "sub")
    spec = load_spec("top.yaml")
    assert isinstance(spec, PretrainSpec)
    assert spec.steps == 20
    assert spec.corpus.files == ("a.txt",)


def test_a_stage_extends_a_file_beside_the_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", PRETRAIN.replace("steps: 10", "learning_rate: fast"), "broken.yaml")
    write(tmp_path / "sub", "extends: broken.yaml\nlearning_rate: 1.0e-3\n", "base.yaml")
    text = "kind: pipeline\nstages:\n  learn:\n    extends: sub/base.yaml\n    steps: 20\n"
    monkeypatch.chdir(tmp_path / "sub")
    spec = load_spec(write(tmp_path, text))
    assert isinstance(spec, PipelineSpec)
    stage = spec.stages["learn"]
    assert isinstance(stage, PretrainSpec)
    assert (stage.steps, stage.learning_rate, stage.corpus.files) == (20, 1e-3, ("a.txt",))
    with pytest.raises(SpecError, match=r"broken.yaml:5: stages.learn.learning_rate is 'fast'"):
        load_spec(write(tmp_path, text.replace("base", "broken")))
    with pytest.raises(
        SpecError, match=r"spec.yaml:4: extends names .*bose.yaml, which is no file; did you mean .*base"
    ):
        load_spec(write(tmp_path, text.replace("base", "bose")))


def test_a_stages_own_base_wins_over_the_extended_pipelines(tmp_path: Path) -> None:
    write(tmp_path, PRETRAIN, "ten.yaml")
    write(tmp_path, "extends: ten.yaml\nsteps: 20\n", "twenty.yaml")
    write(tmp_path, "kind: pipeline\nstages:\n  a: {extends: ten.yaml, seed: 5}\n", "parent.yaml")
    text = "extends: parent.yaml\nstages:\n  a: &a {extends: twenty.yaml}\n  b: {<<: *a, steps: 30}\n"
    spec = load_spec(write(tmp_path, text))
    assert isinstance(spec, PipelineSpec)
    stages = [(stage.steps, stage.seed) for stage in spec.stages.values() if isinstance(stage, PretrainSpec)]
    assert stages == [(20, 5), (30, 0)]


def test_an_axis_is_replaced_whole_and_null_leaves_it_out(tmp_path: Path) -> None:
    write(tmp_path, SWEEP + "  learning_rate: {choice: [1e-4]}\n", "base.yaml")
    child = "extends: base.yaml\nsearch: random\ntrials: 2\n"
    child += "space:\n  learning_rate: {log_uniform: [1e-5, 1e-3]}\n  batch_size: null\n"
    spec = load_spec(write(tmp_path, child))
    assert isinstance(spec, SweepSpec)
    assert spec_values(spec)["space"] == {"learning_rate": {"log_uniform": [1e-5, 1e-3]}}


def test_extends_in_a_circle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"circle: spec.yaml → spec.yaml"):
        load_spec(write(tmp_path, "kind: pipeline\nstages:\n  a: {extends: spec.yaml}\n"))
    write(tmp_path, "extends: b.yaml\n", "a.yaml")
    write(tmp_path, "extends: a.yaml\n", "b.yaml")
    with pytest.raises(SpecError, match=r"circle: a.yaml → b.yaml → a.yaml"):
        load_spec(tmp_path / "a.yaml")


def test_a_missing_file_names_its_neighbor(tmp_path: Path) -> None:
    write(tmp_path, SWEEP, "sweep_sst2.yaml")
    with pytest.raises(SpecError, match=r"did you mean .*sweep_sst2\.yaml"):
        load_spec(tmp_path / "sweep_sst.yaml")
    with pytest.raises(SpecError, match="it is a folder"):
        load_spec(tmp_path)
    with pytest.raises(SpecError, match="there is no folder"):
        load_spec(tmp_path / "none" / "s.yaml")


def test_the_one_task_of_a_pipelines_stages_is_the_pipelines(tmp_path: Path) -> None:
    sweep = "{kind: sweep, task: {id: TASK}, recipe: {tokenizer: words}, space: {learning_rate: [1.0e-3]}}"
    one = f"kind: pipeline\nstages:\n  tuning: {sweep.replace('TASK', 'sst2')}\n"
    (tmp_path / "one.yaml").write_text(one)
    (tmp_path / "two.yaml").write_text(f"{one}  more: {sweep.replace('TASK', 'mrpc')}\n")
    assert load_task_spec(str(tmp_path / "one.yaml"), ["folder=glue"]).folder == "glue"
    with pytest.raises(SpecError, match="of kind pipeline, which has no task, or several"):
        load_task_spec(str(tmp_path / "two.yaml"))
    varied = one.replace("}\n", ", variants: {a: {recipe.size: tiny}, b: {recipe.size: mini}}}\n")
    (tmp_path / "varied.yaml").write_text(varied)
    assert load_task_spec(str(tmp_path / "varied.yaml")).id == "sst2"
    (tmp_path / "empty.yaml").write_text(f"{one}  more:\n")
    with pytest.raises(SpecError, match="more"):
        load_task_spec(str(tmp_path / "empty.yaml"))


AUTO = PRETRAIN.replace("steps: 10", "steps: auto")
VARIANTS = "    corpus: {files: [a.txt]}\n    variants: {small: {vocab_size: 99}}\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("extends: none.yaml\n", "spec.yaml:1: extends"),
        ("extends: 5\n", "extends is 5"),
        ("steps: 5\n", "kind is missing"),
        ("kind: pertrain\n", "spec.yaml:1: kind is 'pertrain'; did you mean pretrain?"),
        (PRETRAIN + "stepz: 5\n", "spec.yaml:6: stepz is no field of this spec; did you mean steps?"),
        (f"kind: pipeline\nstages:\n  a:\n    kind: tokenizer\n{VARIANTS}min_frequency: 3\n", "mean stages.a.min_fre"),
        ("kind: pipeline\nstages:\n  a: {kind: swep}\na: 3\n", "; did you mean stages.a?"),
        ("kind: pipeline\nstages:\n  a: {kind: sweep}\nepochs: 3\n", "; did you mean stages.a.recipe.epochs?"),
        (PRETRAIN + "model:\n  size: bse\n", "spec.yaml:7: model.size 'bse' is not known; did you mean base?"),
        (PRETRAIN + "model: [1]\n", "model is [1]"),
        (PRETRAIN + "model:\n  hiden_size: 8\n", "spec.yaml:7: model.hiden_size"),
        (PRETRAIN + "learning_rate: fast\n", "spec.yaml:6: learning_rate is 'fast'"),
        (PRETRAIN + "learning_rate: -1\n", "learning_rate is -1"),
        (PRETRAIN + "seed: true\n", "spec.yaml:6: seed is true"),
        (PRETRAIN + "name: 5\n", "put it in quotes: '5'"),
        (PRETRAIN + "phases: [{share: 0.5}]\n", "phases"),
        (PRETRAIN + "precision: fp32\nresidual_precision: bf16\n", "residual_precision"),
        (PRETRAIN + "adam_betas: [0.9, 2]\n", "spec.yaml:6: adam_betas"),
        (PRETRAIN + "warmup_ratio: 0.5\ndecay_ratio: 0.6\n", "decay_ratio 0.6"),
        (PRETRAIN + "learning_rate_schedule: constant\ndecay_ratio: 0.6\n", "decay_ratio says nothing"),
        (PRETRAIN + "init_step: 5\n", "init_step 5"),
        (PRETRAIN + "init_from: model\ninit_step: 10\n", "init_step 10"),
        (PRETRAIN + "init_from: model\ninit_step: 5\ndecay_ratio: 0.6\n", "decay_ratio 0.6"),
        (PRETRAIN + "init_from: model\ninit_step: 5\nexecution: {snapshot_steps: [5]}\n", "snapshot_steps [5]"),
        (PRETRAIN.replace("[a.txt]", "[a.txt]\n  weights: [1, 2]"), "spec.yaml:4: corpus weights has 2"),
        (PRETRAIN.replace("[a.txt]", "[a.txt]\n  languages: [de, en]"), "spec.yaml:4: corpus languages has 2"),
        (PRETRAIN.replace("[a.txt]", "[a.txt]\n  languages: [German]"), "corpus.languages"),
        (PRETRAIN.replace("[a.txt]", "[a.txt]\n  weights: [0]"), "spec.yaml:4: corpus.weights are all 0"),
        (PRETRAIN.replace("[a.txt]", "[a.txt]\n  weights: [1]\n  max_documents: 9"), "max_documents"),
        (PRETRAIN + "phases: [{corpus_weights: [1]}]\n", "phases.corpus_weights"),
        (PRETRAIN + "phases: [{global_batch_size: 1}]\nexecution: {num_workers: 2}\n", "global_batch_size 1 "),
        (PRETRAIN + "execution: {snapshot_steps: [3, 3]}\n", "snapshot_steps"),
        (PRETRAIN + "execution: {snapshot_steps: [-1]}\n", "snapshot_steps"),
        (PRETRAIN + "execution: {snapshot_steps: [11]}\n", "snapshot_steps"),
        (PRETRAIN + "average_steps: [5, 10]\nexecution: {snapshot_steps: [10]}\n", "average_steps [5, 10]"),
        (PRETRAIN + "average_steps: [5, 5]\nexecution: {snapshot_steps: [5]}\n", "average_steps [5, 5]"),
        (AUTO + "average_steps: [5, 10]\nexecution: {max_hours: 1}\n", "average_steps"),
        (AUTO, "steps auto is as many as fit into execution.max_hours"),
        (AUTO + "execution: {max_hours: 1, snapshot_steps: [5]}\n", "execution.snapshot_steps"),
        (AUTO + "execution: {max_hours: 1, num_workers: {min: 1, max: 2}}\n", "execution.num_workers"),
        (AUTO + "init_from: model\ninit_step: 5\nexecution: {max_hours: 1}\n", "init_step"),
        (PRETRAIN + "cross_documents: true\n", "spec.yaml:6: cross_documents"),
        (PRETRAIN + "micro_batch_size: 8\nmicro_batch_tokens: 512\n", "micro_batch_tokens 512"),
        (PRETRAIN + "micro_batch_tokens: 100\n", "micro_batch_tokens 100"),
        (PRETRAIN + "mask_mix: [1, 1, 1]\n", "spec.yaml:6: mask_mix"),
        (PRETRAIN.replace("[a.txt]", "[]"), "corpus.files is []"),
        ("kind: pretrain\ntokenizer: t\nsteps: 1\n", "corpus is needed"),
        (SWEEP + "  epochs: {choise: [1]}\n", "spec.yaml:7: space.epochs"),
        (SWEEP + "  epoch: [1]\n", "spec.yaml:7: space.epoch is no field of recipe; did you mean epochs?"),
        (SWEEP + "  epochs: [1]\n  doc_stride: [8.5]\n", "spec.yaml:8: space.doc_stride has 8.5"),
        (SWEEP + "  size: [bse]\n", "'bse' is not known; did you mean base?"),
        (SWEEP + "  epochs: {uniform: [1, 2]}\n", "space.epochs is a range"),
        (SWEEP + "  seed: [1]\n", "`seeds`"),
        (SWEEP + "search: random\n", "`trials`"),
        (SWEEP + "scheduler: asa\n", "allowed: none, asha; did you mean asha?"),
        (SWEEP + "  epochs: [1, true]\n", "space.epochs has true, and recipe.epochs is a number"),
        (SWEEP + "  epochs: {uniform: [1, inf]}\n", "space.epochs"),
        ("kind: pipeline\nstages:\n  a: {kind: swep}\n", "spec.yaml:3: stages.a has an unknown kind: 'swep'"),
        ("kind: pipeline\nstages:\n  a: {}\n", "stages.a has no kind"),
        ("kind: pipeline\nstages:\n  a: {kind: sweep, trials: 0}\n", "stages.a.trials is 0"),
    ],
)
def test_a_broken_spec_is_told_apart_by_place_and_field(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, text))
    assert place in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("steps", "'steps'"),
        ("=5", "'=5'"),
        ("steps.x=1", "steps.x=1"),
        ("corpus.files.7=b", "corpus.files.7"),
        ("steps=[", "steps=["),
        ("stps=5", "override stps=5: stps is no field of this spec; did you mean steps?"),
        ("recipe.epochs=2", "override recipe.epochs=2: recipe"),
        ("files=a", "override files=a: files is no field of this spec; did you mean corpus.files?"),
    ],
)
def test_a_broken_override_is_named(tmp_path: Path, override: str, named: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, PRETRAIN), [override])
    assert named in str(caught.value)


def test_random_weights_without_a_tokenizer_are_refused_wherever_they_are_asked_for(tmp_path: Path) -> None:
    sweep = "kind: sweep\ntask: {id: sst2, folder: data}\n"
    arms = sweep + "recipe: {learning_rate: 1.0e-4}\nspace: {init_from: [pretrained, random]}\n"
    stage = "kind: pipeline\nstages:\n  learn: {kind: sweep, task: {id: sst2}, space: {init_from: ['@m', random]}}\n"
    for text, place in ((sweep, "spec.yaml:1"), (arms, "spec.yaml:3"), (stage, "spec.yaml:3: stages.learn")):
        with pytest.raises(SpecError, match=f"{place}.* recipe.tokenizer"):
            load_spec(write(tmp_path, text))
    for override in ("recipe.tokenizer=@words", "space.tokenizer=[a, b]", "space.init_from=[a]", "recipe.init_from=a"):
        assert isinstance(load_spec(write(tmp_path, sweep), [override]), SweepSpec)


PHASES = [{"share": 0.9}, {"share": 0.1, "max_seq_length": 512}]
SPACE = {"learning_rate": {"log_uniform": [1e-5, 1e-4]}, "batch_size": [8, 16], "epochs": {"choice": [1]}}


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (PRETRAIN, {"learning_rate": 1e-12, "tags": ["", "a: ü"], "phases": PHASES}),
        (SWEEP, {"search": "optuna", "trials": 3, "space": SPACE}),
    ],
)
def test_a_spec_survives_the_way_through_plain_values(tmp_path: Path, text: str, more: dict[str, object]) -> None:
    spec = load_spec(write(tmp_path, text), more)
    again = parse_spec(spec_values(spec))
    assert again == spec
    assert again.fingerprint() == spec.fingerprint()


def test_many_problems_are_cut_to_a_handful(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="4 more"):
        load_spec(write(tmp_path, PRETRAIN + "".join(f"x{i}: 1\n" for i in range(9))))


def test_data_is_told_to_be_no_spec(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("text,label\nfine,good\n")
    with pytest.raises(SpecError, match=r"orchestrator init .*reviews\.csv"):
        load_spec(tmp_path / "reviews.csv")

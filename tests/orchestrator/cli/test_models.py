"""Models put to use: fill-mask, next-sentence, predict, evaluate, export, on tiny models with random weights.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_models.py
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core import BertConfig, BertForPreTraining
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import NotFoundError
from orchestrator.base.settings import Settings
from orchestrator.inference.pretraining_heads import fill_mask, next_sentence
from orchestrator.registry.model_names import resolve_model
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.tiny_models import save_pair_model


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_pair_model(tmp_path_factory.mktemp("models") / "classifier", ["negative", "positive"])


def test_fill_mask_gives_the_likeliest_tokens_in_order(pretrained: str) -> None:
    guesses = fill_mask(pretrained, "the [MASK] sat on the [MASK].", top_k=3)
    assert [(guess.mask, guess.rank) for guess in guesses] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    first = [guess.probability for guess in guesses[:3]]
    assert first == sorted(first, reverse=True)
    assert all(0 < guess.probability < 1 for guess in guesses)
    token = guesses[3].token
    expected = f"the [MASK] sat on the{'' if token.startswith('##') else ' '}{token.removeprefix('##')}."
    assert guesses[3].text == expected


def test_fill_mask_agrees_with_the_padded_model(pretrained: str) -> None:
    tokenizer, model = Tokenizer.load(pretrained), BertForPreTraining.from_pretrained(pretrained)
    ids = [tokenizer.cls_id, *tokenizer.encode_masked("the [MASK] sat"), tokenizer.sep_id]
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).prediction_logits
    assert logits is not None
    probabilities = logits[0, ids.index(tokenizer.mask_id)].softmax(-1)
    (best,) = fill_mask(pretrained, "the [MASK] sat", top_k=1)
    assert best.probability == pytest.approx(float(probabilities.max()), rel=1e-5)
    assert tokenizer.id(best.token) == int(probabilities.argmax())


def test_next_sentence_is_the_probability_of_the_first_class(pretrained: str) -> None:
    tokenizer, model = Tokenizer.load(pretrained), BertForPreTraining.from_pretrained(pretrained)
    a, b = tokenizer.encode_ids(["the cat sat", "it rained"])
    ids = [tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id]
    types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    with torch.inference_mode():
        logits = model(torch.tensor([ids]), token_type_ids=torch.tensor([types])).seq_relationship_logits
    found = next_sentence(pretrained, "the cat sat", "it rained")
    assert found.probability == pytest.approx(float(logits.softmax(-1)[0, 0]), rel=1e-5)
    assert found.follows == (found.probability >= 0.5)


def test_commands_show_guesses_and_probabilities(command: Command, pretrained: str) -> None:
    rows = json.loads(command("fill-mask", pretrained, "the [MASK] sat", "--top-k", "2", "-f", "json").out)
    assert [row["rank"] for row in rows] == [1, 2]
    outcome = command("next-sentence", pretrained, "the cat", "the dog", "-f", "json")
    assert 0 < json.loads(outcome.out)["probability"] < 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fill-mask", "MODEL", "no mask here"], "[MASK]"),
        (["fill-mask", "MODEL", "[MASK] " * 60], "24"),
        (["next-sentence", "MODEL", "a cat", " "], "word"),
        (["predict", "MODEL"], "head"),
        (["fill-mask", "CLASSIFIER", "a [MASK]"], "head"),
    ],
)
def test_what_a_model_cannot_do_is_said(
    command: Command, pretrained: str, classifier: str, arguments: list[str], complaint: str
) -> None:
    names = {"MODEL": pretrained, "CLASSIFIER": classifier}
    outcome = command(*[names.get(word, word) for word in arguments])
    assert (outcome.status, outcome.out) == (2, "")
    assert complaint in outcome.err


@pytest.mark.parametrize(
    ("changes", "word", "says"),
    [
        ({"causal_attention": True}, "fill-mask", "reads from left to right"),
        ({"causal_attention": True}, "next-sentence", "reads from left to right"),
        ({"family": "distilbert"}, "next-sentence", "a model of its family (distilbert)"),
        ({}, "next-sentence", "was never trained"),
    ],
)
def test_a_model_that_was_pretrained_otherwise_is_refused(
    command: Command, pretrained: str, tmp_path: Path, changes: dict[str, Any], word: str, says: str
) -> None:
    folder = tmp_path / "otherwise"
    tokenizer = Tokenizer.load(pretrained)
    config = BertConfig.from_shape(1, 64, vocab_size=tokenizer.vocab_size, **changes)
    BertForPreTraining.from_config(config, seed=0).save_pretrained(folder)
    tokenizer.save(folder)
    outcome = command(word, str(folder), *["a [MASK]", "the dog"][: 1 + (word == "next-sentence")])
    assert (outcome.status, outcome.out) == (2, "")
    assert says in outcome.err


def test_evaluate_shows_classes_confusions_and_the_worst_mistakes(
    command: Command, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "dev.csv").write_text("text,label\ncats rest,positive\nrain falls,negative\nrain rests,negative\n")
    task = [
        "own",
        "head=classification",
        "files.validation=dev.csv",
        "text_columns=[text]",
        "labels=[negative, positive]",
    ]
    outcome = command("evaluate", classifier, *task, "--errors", "2", "-o", "p.jsonl")
    assert outcome.status == 0, outcome.err
    shown = outcome.out
    assert "\nclasses\nlabel     precision" in shown
    assert "confusions: gold in rows, predicted in columns\ngold      negative  positive\n" in shown
    assert "the worst first\n" in shown
    record = json.loads(command("evaluate", classifier, *task, "--errors", "2", "-f", "json").out)
    assert [row["support"] for row in record["classes"]] == [2, 1]
    assert all(row["prediction"] != row["gold"] for row in record["mistakes"])
    of_file = json.loads(command("evaluate", classifier, "dev.csv", "-f", "json").out)
    assert command("evaluate", classifier, "dev.csv", "--split", "test").status == 2
    assert of_file["accuracy"] == record["accuracy"], "a file is read with the columns that `predict` reads"
    assert json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])["text"] == "cats rest"


def test_evaluate_scores_a_folder_on_a_task(command: Command, classifier: str, tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\nthe cat\t1\nthe dog\t0\nthe mat\t1\n")
    arguments = ["evaluate", classifier, "sst2", "folder=SST-2", "-o", "p.jsonl", "-f", "json"]
    outcome = command(*arguments)
    assert outcome.status == 0, outcome.err
    record = json.loads(outcome.out)
    assert (record["task"], record["split"], record["num_examples"]) == ("sst2", "validation", 3)
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert record["accuracy"] == pytest.approx(sum(row["correct"] for row in rows) / 3)
    spec = tmp_path / "sweep.yaml"
    spec.write_text("kind: sweep\ntask: {id: sst2, folder: SST-2}\nrecipe: {tokenizer: words}\n")
    assert json.loads(command("evaluate", classifier, "sweep.yaml", "-f", "json").out) == record
    assert json.loads(command(*arguments[:3], "task.folder=SST-2", "-f", "json").out) == record
    without = command("evaluate", classifier, "sst2")
    assert without.status == 2
    assert "give folder=DIR to evaluate" in without.err
    unknown = command("evaluate", classifier, "sst3", "folder=SST-2")
    assert unknown.status == 3
    assert "did you mean sst2?" in unknown.err


def test_export_copies_a_model_whole_and_refuses_what_is_there(
    command: Command, pretrained: str, tmp_path: Path
) -> None:
    outcome = command("models", "export", pretrained, "-o", str(tmp_path / "out"))
    assert outcome.status == 0, outcome.err
    assert fill_mask(str(tmp_path / "out"), "the [MASK]") == fill_mask(pretrained, "the [MASK]")
    again = command("models", "export", pretrained, "-o", str(tmp_path / "out"))
    assert again.status == 2
    assert "is there already" in again.err


def test_a_flipped_bit_is_noticed_by_export_and_use(command: Command, pretrained: str, tmp_path: Path) -> None:
    shutil.copytree(pretrained, tmp_path / "bad")
    weights = tmp_path / "bad" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for arguments in (["models", "export", "bad", "-o", "out"], ["fill-mask", "bad", "the [MASK]"]):
        outcome = command(*arguments)
        assert (outcome.status, outcome.out) == (2, "")
        assert "model.safetensors" in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_model_is_found_by_folder_name_or_run(recorded_sweep: RecordedSweep, home: Path, pretrained: str) -> None:
    settings = Settings.from_options()
    with pytest.raises(NotFoundError, match="has left no model"):
        resolve_model(recorded_sweep.trial_ids[0], settings)
    assert resolve_model(pretrained, settings) == pretrained
    for name in ("first", "first@1", recorded_sweep.run_id, recorded_sweep.run_id[:6]):
        assert resolve_model(name, settings) == str(home / "model")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("nothing", "nothing"), ("first@9", "first@9"), ("models", "config"), ("./nothing", "nothing")],
)
def test_a_model_that_is_none_is_not_found(
    recorded_sweep: RecordedSweep, tmp_path: Path, name: str, complaint: str
) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(NotFoundError, match=complaint):
        resolve_model(name, Settings.from_options())

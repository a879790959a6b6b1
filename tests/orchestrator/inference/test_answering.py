"""Any model's folder behind one interface: what it can do, and the same answers as by its own command.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_answering.py
"""

import csv
import io
from dataclasses import asdict
from pathlib import Path

import pytest

from bert_core import BertConfig, BertForTokenClassification, BertModel
from bert_core.errors import CheckpointError
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError
from orchestrator.finetuning.model_folder import load_fine_tuned
from orchestrator.inference import predict
from orchestrator.inference.line_blocks import LineBlock
from orchestrator.inference.predictor import AnswerForm, Predictor
from orchestrator.inference.pretraining_heads import fill_mask
from orchestrator.inference.requests import TableColumns
from orchestrator.inference.serving import load_answering
from orchestrator.inference.text_vectors import load_embedder
from tests.orchestrator.tiny_models import CONFIG, save_encoder, save_pair_model


def test_a_pretrained_model_fills_masks(pretrained: str) -> None:
    answering = load_answering(pretrained, precision="fp32")
    assert answering.abilities.head == "fill_mask"
    (answer,) = answering.answer(["cats [MASK] on the mat"])
    assert answer == {
        "text": "cats [MASK] on the mat",
        "guesses": [asdict(guess) for guess in fill_mask(pretrained, "cats [MASK] on the mat")],
    }
    with pytest.raises(InputError, match=r"line 2.*\[MASK\]"):
        answering.answer([answering.abilities.example, "cats"])


def test_a_tagger_reads_words(pretrained: str, tmp_path: Path) -> None:
    config = BertConfig.from_pretrained(pretrained).with_labels(["O", "B-PER", "I-PER"])
    BertForTokenClassification.from_config(config, seed=1).save_pretrained(tmp_path)
    Tokenizer.load(pretrained).save(tmp_path)
    answering = load_answering(str(tmp_path))
    assert (answering.abilities.head, answering.abilities.keys) == ("ner", ("words",))
    (answer,) = answering.answer([answering.abilities.example])
    assert len(answer["tags"]) == len(answer["words"])
    assert answering.answer([{"words": "cats rest.", "n": 1}])[0]["words"] == ["cats", "rest", "."]
    assert answering.answer([{"words": []}]) == [{"words": [], "tags": []}]
    assert answering.answer(["cats rest"]) == list(predict(str(tmp_path), ["cats rest"]))
    form = AnswerForm(TableColumns(("text", "n"), ("text",)), delimiter=",")
    block = Predictor.load(str(tmp_path), form=form)(LineBlock(((1, '{"text": "cats rest.", "n": 1}'),)))
    header, row = csv.reader(io.StringIO((form.header() + block.data).decode()))
    assert (row[:2], len(row)) == (["cats rest.", "1"], len(header))


@pytest.mark.parametrize(
    ("labels", "head"), [(["no", "yes"], "classification"), (["LABEL_0"], "regression")], ids=lambda value: str(value)
)
def test_a_models_example_can_be_answered(tmp_path: Path, labels: list[str], head: str) -> None:
    answering = load_answering(save_pair_model(tmp_path / "m", labels))
    assert answering.abilities.head == head
    assert answering.abilities.takes_text
    assert answering.answer([answering.abilities.example])[0]["text"] == answering.abilities.example["text"]


def test_a_model_from_elsewhere_reads_as_far_as_it_can_and_longer_texts_are_counted(tmp_path: Path) -> None:
    classifier = save_pair_model(tmp_path / "m", ["no", "yes"], num_positions=200)
    assert load_fine_tuned(Path(classifier)).record.options.max_seq_length == 200
    for num_positions, read in ((200, 150), (100, 100)):
        encoder = Path(save_encoder(tmp_path / "e", 0, num_positions, max_seq_length=150))
        assert (
            load_fine_tuned(encoder).record.options.max_seq_length == load_embedder(str(encoder)).max_seq_length == read
        )
    lines = tuple((number, "cats " * num_words) for number, num_words in enumerate((198, 199, 5), start=1))
    for form in (AnswerForm(), AnswerForm(TableColumns(("text",), ("text",)), delimiter=",")):
        predictor = Predictor.load(classifier, form=form)
        assert [predictor(LineBlock(some)).num_truncated for some in (lines, lines[:1])] == [1, 0]


def test_whatever_a_model_answers_it_answers_in_bf16_too(pretrained: str, tmp_path: Path) -> None:
    classifier, encoder = save_pair_model(tmp_path / "m", ["no", "yes"]), save_encoder(tmp_path / "e", 0)
    asked = {pretrained: "cats [MASK] on the mat", classifier: "cats\train", encoder: "cats"}
    for folder, text in asked.items():
        exact, rounded = (load_answering(folder, precision=some).answer([text])[0] for some in ("fp32", "bf16"))
        assert exact.keys() == rounded.keys()
        assert exact != rounded
        assert load_answering(folder).answer([text])[0] in (exact, rounded)


def test_an_encoder_gives_vectors(tmp_path: Path) -> None:
    answering = load_answering(save_encoder(tmp_path / "m", 0))
    assert answering.abilities.head == "embedding"
    assert len(answering.answer(["cats"])[0]["embedding"]) == CONFIG["hidden_size"]


def test_a_folder_without_any_head_says_so(pretrained: str, tmp_path: Path) -> None:
    BertModel.from_pretrained(pretrained).save_pretrained(tmp_path)
    Tokenizer.load(pretrained).save(tmp_path)
    with pytest.raises(CheckpointError, match="head"):
        load_answering(str(tmp_path))

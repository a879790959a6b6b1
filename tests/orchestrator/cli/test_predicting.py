"""`predict` and `embed` of lines, of packed files, of texts and of tables; `serve` before anything is started.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_predicting.py
"""

import csv
import gzip
import io
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bert_core.config import BertConfig
from bert_core.text_embedding import TextEmbedder
from orchestrator.base.web import listening
from orchestrator.finetuning.model_record import FineTuningRecord
from orchestrator.inference import serving as app
from orchestrator.inference.line_blocks import Abilities
from orchestrator.storage.model_folder import RECORD_FILE
from orchestrator.tasks.types.base import TaskOptions
from tests.orchestrator.cli.fresh_process import loaded_by_each
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.tasks.definitions import define


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines and a blank one; not a terminal."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cats rest\n\nrain falls\n")))


@pytest.mark.parametrize("name", ["embed", "predict"])
def test_stdin_and_a_packed_file_give_the_same(
    name: str, stdin: None, command: Command, encoder: str, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"cats rest\n\nrain falls\n"))
    model = {"embed": encoder, "predict": classifier}[name]
    piped = command(name, model)
    assert [json.loads(line)["text"] for line in piped.out.splitlines()] == ["cats rest", "rain falls"]
    assert command(name, model, "lines.gz").out == piped.out


@pytest.mark.parametrize("words", [["embed"], ["predict"], ["predict", "cats rest"]])
def test_workers_want_a_file(command: Command, encoder: str, classifier: str, words: list[str]) -> None:
    model = {"embed": encoder, "predict": classifier}[words[0]]
    outcome = command(words[0], model, *words[1:], "--workers", "2")
    assert (outcome.status, outcome.out) == (2, "")
    assert "--workers" in outcome.err


@pytest.mark.parametrize("name", ["embed", "predict"])
def test_a_text_in_place_of_a_file_is_answered(
    name: str, command: Command, encoder: str, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "one.txt").write_text("cats rest.\n")
    model = {"embed": encoder, "predict": classifier}[name]
    assert command(name, model, "cats rest.").out == command(name, model, "one.txt").out


def test_the_first_numbers_of_vectors_are_kept_and_the_models_prompts_stand_before_the_texts(
    command: Command, encoder: str, tmp_path: Path
) -> None:
    embedder = TextEmbedder.load(encoder)
    own = embedder.model.embedding
    embedder.model.embedding = replace(own, prompts={"query": "cats ", "passage": "rain ", "likeness": "old "})
    embedder.save(tmp_path / "prompted")

    def vector(model: str, text: str, *options: str) -> list[float]:
        return list(json.loads(command("embed", model, text, *options).out)["embedding"])

    whole = vector(encoder, "rain falls near stones")
    assert vector(encoder, "rain falls near stones", "--dimensions", "3") == whole[:3]
    assert vector("prompted", "falls near stones") == whole
    assert vector("prompted", "on the mat", "--as", "query") == vector(encoder, "cats on the mat")
    assert vector("prompted", "cold stones", "--as", "likeness") == vector(encoder, "old cold stones")
    assert command("embed", encoder, "a cat", "--dimensions", "17").status == 2
    assert command("embed", encoder, "a cat", "--as", "likeness").status == 2


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("notes", "; check the path"),
        ("my data/reviews.csv.gz", ": there is no folder my data"),
        ("reviws.csv", "; did you mean reviews.csv?"),
        ("reviews.tsv", "; did you mean reviews.csv?"),
        ("review.csv", "; did you mean reviews.csv?"),
    ],
)
def test_a_file_that_is_not_there_is_no_text(
    file: str, told: str, command: Command, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "reviews.csv").write_text("text\ncats rest\n")
    (tmp_path / "reviews2.txt").write_text("cats rest\n")
    outcome = command("predict", classifier, file)
    assert (outcome.status, outcome.out) == (2, "")
    assert f"there is no file {file}{told}" in outcome.err


@pytest.mark.parametrize("text", ["see example.com", "what a film...yes"])
def test_a_text_may_end_as_a_name_on_the_web_does(text: str, command: Command, classifier: str) -> None:
    assert json.loads(command("predict", classifier, text).out)["text"] == text


def test_a_key_of_the_answer_that_a_line_has_stays_as_it_is(command: Command, classifier: str, tmp_path: Path) -> None:
    (tmp_path / "gold.jsonl").write_text('{"text": "cats rest", "label": "gold", "id": 7}\n{"text": "cats rest"}\n')
    first, second = map(json.loads, command("predict", classifier, "gold.jsonl").out.splitlines())
    assert list(first) == ["text", "label", "id", "predicted_label", "probabilities"]
    assert (first["label"], first["predicted_label"]) == ("gold", second["label"])


def test_a_folder_without_weights_is_enough_to_refuse_a_broken_line(
    command: Command, recorded_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines.jsonl").write_text('{"text": "cats rest"}\n\n{"text": [3]}\n')
    outcome = command("predict", str(recorded_model), "lines.jsonl")
    assert "lines.jsonl: line 3: text must be text; the keys of classification are text, text_pair" in outcome.err
    outcome = command("predict", str(recorded_model), '{"words": ["a"]}')
    assert "line 1: no key 'text'; it has: words" in outcome.err


@pytest.mark.heavy
def test_what_a_person_has_to_mend_is_told_before_torch_is_loaded(recorded_model: Path, tmp_path: Path) -> None:
    model, table, broken = str(recorded_model), tmp_path / "rows.csv", tmp_path / "lines.jsonl"
    table.write_text("title\na\n")
    broken.write_text('{"text": \n')
    for status, loaded in loaded_by_each(
        [
            ["predict", model, str(tmp_path / "missing.txt")],
            ["predict", model, str(table)],
            ["predict", model, str(broken)],
            ["predict", model, str(broken), "-o", str(tmp_path / "none" / "out.jsonl")],
        ]
    ).values():
        assert status == 2
        assert not loaded & {"torch", "ray"}


@pytest.fixture
def recorded_model(tmp_path: Path) -> Path:
    """Folder of a fine-tuned model whose weights are missing."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = BertConfig.from_size("tiny", vocab_size=50).with_labels(["no", "yes"], "single_label_classification")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    options = TaskOptions(max_seq_length=16)
    record = FineTuningRecord(define("classification", metric="accuracy"), options)
    (folder / RECORD_FILE).write_text(json.dumps(record.to_dict()))
    return folder


ROWS = [["text", "label", "id"], ["cats rest", "no", "a"], ["rain, falls", "yes", "b"]]


@pytest.fixture
def table(home: Path) -> Path:
    """A labeled CSV file in the current folder."""
    path = Path("rows.csv").absolute()
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(ROWS)
    return path


def _prediction(command: Command, classifier: str, text: str) -> dict[str, object]:
    Path("one.txt").write_text(text + "\n")
    answer: dict[str, object] = json.loads(command("predict", classifier, "one.txt").out)
    return answer


def test_a_csv_file_comes_back_with_two_more_columns(command: Command, classifier: str, table: Path) -> None:
    rows = list(csv.DictReader(command("predict", classifier, "rows.csv").out.splitlines()))
    assert [list(row) for row in rows] == [["text", "label", "id", "prediction", "score"]] * 2
    assert [[row["text"], row["label"], row["id"]] for row in rows] == ROWS[1:]
    for row in rows:
        line = _prediction(command, classifier, row["text"])
        assert row["prediction"] == line["label"]
        assert float(row["score"]) == pytest.approx(max(line["probabilities"].values()))  # type: ignore[attr-defined]


def test_a_tsv_file_comes_back_as_tsv_and_an_ending_asks_for_json_lines(
    command: Command, classifier: str, home: Path
) -> None:
    Path("rows.tsv").write_text('text\tid\n"cats" rest\t1\n')
    header, row = command("predict", classifier, "rows.tsv").out.splitlines()
    assert header == "text\tid\tprediction\tscore"
    assert row.startswith('"cats" rest\t1\t')
    Path("rows.csv").write_text('text;score\n"cats; rest";3\n')
    assert "score" in command("predict", classifier, "rows.csv").err
    Path("rows.csv").write_text('text;note\n"cats; rest";a,b\n')
    assert '\n"cats; rest";a,b;' in command("predict", classifier, "rows.csv").out
    assert command("predict", classifier, "rows.tsv", "-o", "answers.jsonl").status == 0
    assert command("predict", classifier, "rows.tsv", "-f", "json").out == Path("answers.jsonl").read_text()
    assert list(json.loads(Path("answers.jsonl").read_text())) == ["text", "id", "prediction", "score"]


def test_a_table_from_a_pipe_is_refused_before_its_header_is_answered(
    command: Command, classifier: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    outcome = command("predict", classifier)
    assert (outcome.status, outcome.out) == (2, "")
    assert "stdin begins as a table" in outcome.err
    assert "text,label,id" in outcome.err


def test_a_text_that_tsv_cannot_hold_is_named_and_nothing_is_written(
    command: Command, classifier: str, home: Path
) -> None:
    Path("rows.csv").write_text('text,id\n"cats\trest",1\n')
    outcome = command("predict", classifier, "rows.csv", "-o", "answers.tsv")
    assert outcome.status == 2
    assert "a value of 'text' has a tab or a line end, which TSV cannot hold: 'cats\\trest'" in outcome.err
    assert "write .csv or .jsonl" in outcome.err
    assert not Path("answers.tsv").exists()


def test_a_text_column_is_named_where_it_has_another_name(command: Command, classifier: str, home: Path) -> None:
    Path("rows.csv").write_text("title,body\ncats rest,rain falls\n")
    outcome = command("predict", classifier, "rows.csv")
    assert (outcome.status, outcome.out) == (2, "")
    assert "rows.csv has no column 'text', it has 'title', 'body'; name the text by --text-column" in outcome.err
    (row,) = csv.DictReader(
        command("predict", classifier, "rows.csv", "--text-column", "title", "--text-column", "body").out.splitlines()
    )
    assert row["prediction"] == _prediction(command, classifier, "cats rest\train falls")["label"]


def test_a_text_column_needs_a_table(command: Command, classifier: str, home: Path) -> None:
    Path("lines.txt").write_text("cats rest\n")
    assert "lines.txt is none" in command("predict", classifier, "lines.txt", "--text-column", "a").err
    assert "stdin is read as lines" in command("predict", classifier, "--text-column", "a").err


@pytest.mark.parametrize(
    "text",
    ['[{"text": "a"}, {"text": "b"}]', '[\n  {\n    "text": "a"\n  }\n]', '{\n  "text": "a"\n}', '\n["a", "b"]\n'],
    ids=["array", "pretty array", "pretty object", "array of texts"],
)
def test_json_that_is_not_an_object_a_line_is_no_text(
    text: str, command: Command, recorded_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(text)
    outcome = command("predict", str(recorded_model), "a.json")
    assert (outcome.status, outcome.out) == (2, "")
    assert "a.json" in outcome.err
    assert "one JSON object a line" in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("name", "text", "num_blank"),
    [
        ("a.csv", "text\ncats rest\n\nrain falls\n", 0),
        ("a.txt", "cats rest\n\n \nrain falls\n\n", 2),
        ("a.txt", "[cats] rest\nrain falls\n", 0),
    ],
)
def test_blank_lines_between_plain_ones_are_counted(
    name: str, text: str, num_blank: int, command: Command, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    outcome = command("predict", classifier, name, "-f", "jsonl")
    assert len(outcome.out.splitlines()) == 2
    told = [line for line in outcome.err.splitlines() if "blank line" in line]
    assert [line.split()[0] for line in told] == ([str(num_blank)] if num_blank else [])


def test_a_broken_row_below_a_cell_of_several_lines_is_named_by_its_line(
    command: Command, recorded_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('text,text_pair\n"cats\nrest",a\n\na,b,c\n')
    assert "line 5" in command("predict", str(recorded_model), "a.csv").err


def test_a_port_in_use_is_refused_before_the_model_is_loaded(command: Command, classifier: str) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        outcome = command("serve", classifier, "--port", str(port))
    assert (outcome.status, outcome.out) == (2, "")
    assert f"port {port}" in outcome.err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "lab.example"])
def test_an_address_that_others_reach_is_refused_without_a_token(command: Command, classifier: str, host: str) -> None:
    outcome = command("serve", classifier, "--host", host)
    assert (outcome.status, outcome.out) == (2, "")
    assert "--token-file" in outcome.err


@pytest.mark.parametrize("token", [None, "0123456789abcdef"])
def test_a_request_to_paste_is_shown_and_ctrl_c_is_no_error(
    command: Command, classifier: str, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    def serve_model(name: str, folder: str, on_ready: Callable[[str, Abilities], None], **options: object) -> None:
        assert options["token"] == token
        on_ready("http://127.0.0.1:8000", Abilities("qa", ("text",), (), True, {"text": "it's $HOME"}))
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "serve_model", serve_model)
    if token is not None:
        monkeypatch.setenv("ORCHESTRATOR_SERVE_TOKEN", token)
    outcome = command("serve", classifier)
    assert (outcome.status, outcome.out) == (0, "http://127.0.0.1:8000\n")
    (curl,) = [part for part in outcome.err.split("\n\n") if "curl" in part]
    words = shlex.split(curl[curl.index("curl") : curl.index("Ctrl-C")])
    assert words[-1] == '{"inputs": [{"text": "it\'s $HOME"}]}'
    assert ("Authorization: Bearer $ORCHESTRATOR_SERVE_TOKEN" in words) is (token is not None)
    assert outcome.err.endswith(f"stopped: {classifier} is no longer served\n")


def test_the_help_shows_the_default_of_each_option(command: Command) -> None:
    shown = " ".join(command("serve", "--help").out.split())
    assert all(f"[default: {value}" in shown for value in ("127.0.0.1", "8000", "cpu", "auto"))

"""`corpus` and `tokenizer`: text counted, shown as documents and as examples of a spec, and cut into tokens.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_text.py
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.base.results import TokenizerResult
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.storage import write_bytes
from tests.orchestrator.cli.laboratory import Command
from tests.waiting import PATIENCE_S

DOCUMENTS = "The cat sat on the mat. It was warm.\nAll was well.\n\nThe dog sat on the log.\n\n" * 30
SPEC = """kind: pretrain
corpus: {files: [a.txt]}
tokenizer: tok
steps: 10
global_batch_size: 4
phases: [{max_seq_length: 24, share: 0.5}, {max_seq_length: 16, share: 0.5}]
validation_fraction: 0
"""


def test_inspect_counts_each_file_and_all(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "One. Two."}\n{"text": \xff}\n')
    table = command("corpus", "inspect", "a.txt", "b.jsonl")
    assert table.status == 0
    assert table.out.splitlines()[-1].split()[0] == "all"
    assert "line 2" in table.err
    first, second = json.loads(command("corpus", "inspect", "a.txt", "b.jsonl", "-f", "json").out)
    assert (first["num_documents"], first["num_sentences"], first["num_bad_records"]) == (60, 120, 0)
    assert (second["num_documents"], second["num_bad_records"]) == (1, 1)


def test_inspect_counts_a_file_that_cannot_be_read_and_goes_on(command: Command, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"body": ["A"]}), tmp_path / "a.parquet")
    (tmp_path / "b.txt.gz").write_text("not packed")
    (tmp_path / "c.jsonl").write_text('{"body": "A"}\n')
    (tmp_path / "d.txt").write_text(DOCUMENTS)
    outcome = command("corpus", "inspect", "a.parquet", "b.txt.gz", "c.jsonl", "d.txt", "-f", "json")
    assert outcome.status == 0
    *bad, good = json.loads(outcome.out)
    assert [(row["num_documents"], row["num_bad_records"]) for row in bad] == [(0, 1)] * 3
    parquet, packed, lines = [row["first_problem"] for row in bad]
    assert "is not compressed" in packed
    assert "--text-field" in parquet
    assert "--text-field" in lines
    assert good["num_documents"] == 60


def test_a_tokenizer_is_trained_saved_and_reported_on(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    trained = command("tokenizer", "train", "a.txt", "-o", "tok", "--vocab-size", "120", "-f", "json")
    assert trained.status == 0, trained.err
    assert json.loads(trained.out)["folder"] == "tok"
    assert {"tokenizer.json", "vocab.txt"} <= {path.name for path in (tmp_path / "tok").iterdir()}
    report = json.loads(command("tokenizer", "report", "tok", "a.txt", "-f", "json").out)
    assert report["fertility"] >= 1
    assert report["unknown_rate"] == 0
    assert command("tokenizer", "report", "tok", "a.txt", "--max-documents", "1").status == 0
    (tmp_path / "tok").rename(tmp_path / "kept")
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        write_bytes(f"memory://tok/{name}", (tmp_path / "kept" / name).read_bytes())
    again = json.loads(command("tokenizer", "report", "memory://tok", "a.txt", "-f", "json").out)
    assert again["fertility"] == report["fertility"]


def test_a_tokenizer_that_is_not_there_or_text_without_words_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    (tmp_path / "empty.txt").write_text("\n\n")
    assert command("tokenizer", "report", "none", "a.txt").status == 3
    assert command("corpus", "inspect", "none.txt").status == 2
    assert command("tokenizer", "train", "a.txt", "-o", ".").status == 2
    command("tokenizer", "train", "a.txt", "-o", "tok", "--vocab-size", "120")
    for arguments in (["report", "tok", "empty.txt"], ["train", "empty.txt", "-o", "new"]):
        outcome = command("tokenizer", *arguments)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.splitlines()[-1].startswith("Error: ")
    assert not (tmp_path / "new").exists()


@pytest.fixture
def spec(command: Command, tmp_path: Path) -> str:
    """A pretraining spec over a text and its tokenizer."""
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    assert command("tokenizer", "train", "a.txt", "-o", "tok", "--vocab-size", "120").status == 0
    (tmp_path / "p.yaml").write_text(SPEC)
    return "p.yaml"


def test_documents_are_shown_one_sentence_on_a_line(command: Command, tmp_path: Path) -> None:
    long = "A " + "very " * 40 + "long sentence."
    (tmp_path / "a.txt").write_text(f"The cat sat. It was \x1bwarm.\n{long}\n\nThe dog.\n\nThe end.")
    outcome = command("corpus", "show", "a.txt", "--num", "2")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "a.txt#1: 3 sentences",
        "  The cat sat.",
        "  It was �warm.",
        f"  {long}",
        "",
        "a.txt#2: 1 sentence",
        "  The dog.",
    ]


def test_word_pieces_stand_below_their_sentence(command: Command, spec: str) -> None:
    lines = command("corpus", "show", "a.txt", "--tokenizer", "tok", "--num", "1").out.splitlines()
    assert [line.replace(" ", "").replace("##", "") for line in lines[1:3]] == [
        "Thecatsatonthemat.",
        "thecatsatonthemat.",
    ]
    rows = json.loads(command("corpus", "show", "a.txt", "--tokenizer", "tok", "-f", "json").out)
    assert [row["text"] for row in rows[:3]] == ["The cat sat on the mat.", "It was warm.", "All was well."]
    assert rows[0]["document"] == "a.txt#1"
    assert "".join(rows[2]["pieces"]).replace("##", "") == "allwaswell."
    assert "pieces" not in json.loads(command("corpus", "show", "a.txt", "-f", "json").out)[0]


def test_examples_are_shown_with_the_true_tokens(command: Command, spec: str) -> None:
    outcome = command("corpus", "show", spec, "--num", "2")
    assert outcome.status == 0, outcome.err
    assert "no token store yet" in outcome.err
    assert "cat→[MASK]" in outcome.err
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"example 0 of epoch 0 · step 0 · \d+ tokens, no padding · \d hidden", lines[0])
    assert re.fullmatch(r"  label [01]: B (follows A|is from another document)", lines[1])
    assert lines[2].startswith("  A  [CLS] ")
    assert "→" in outcome.out
    assert "\x1b" not in outcome.out
    assert sum(line.startswith("  B  ") for line in lines) == 2


def test_examples_of_a_pipeline_are_those_of_its_pretraining_with_the_tokenizer_that_it_made(
    command: Command, spec: str
) -> None:
    stage = "\n".join(f"    {line}" for line in Path(spec).read_text().splitlines()).replace("tok\n", "'@words'\n")
    words = "  words: {kind: tokenizer, corpus: {files: [a.txt]}, vocab_size: 120}"
    Path("both.yaml").write_text(f"kind: pipeline\nstages:\n{words}\n  model:\n{stage}\n")
    assert "both/words" in command("corpus", "show", "both.yaml").err
    with Registry(Settings.from_options().registry) as registry:
        run = registry.lifecycle.create(kind="tokenizer", name="both/words", fingerprint="f" * 64, spec={})
        registry.datasets.record_tokenizer(run, TokenizerResult("tok", "d" * 64, 120, {}))
    assert command("corpus", "show", "both.yaml").out == command("corpus", "show", spec).out != ""


def test_a_part_of_the_run_can_be_chosen(command: Command, spec: str) -> None:
    arguments = ["--phase", "1", "--epoch", "3", "--from", "2", "--num", "1", "-f", "json"]
    (row,) = json.loads(command("corpus", "show", spec, "sentence_objective=none", *arguments).out)
    assert (row["phase"], row["epoch"], row["example"], row["sentence_label"]) == (1, 3, 2, None)
    assert row["made_from"] == "whole_text"
    assert len(row["tokens"]) <= 16
    hidden = [token for token in row["tokens"] if token["change"]]
    assert hidden
    assert all(token["truth"] for token in hidden)
    text = command("corpus", "show", spec, "sentence_objective=none", *arguments[:-2], "-o", "shown.txt")
    assert (text.status, text.out) == (0, "")
    assert Path("shown.txt").read_text().startswith("example 2 of epoch 3 · after the end · ")
    auto = command("corpus", "show", spec, "steps=auto", "execution.max_hours=1", "--num", "1")
    assert re.match(r"example 0 of epoch 0 · \d+ tokens", auto.out), "no step is known"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["p.yaml", "--phase", "2"], "--phase"),
        (["t.yaml"], "t.yaml"),
        (["none.txt"], "none.txt"),
        (["p.yaml", "corpus.files=[empty.txt]"], "documents"),
        (["p.yaml", "tokenizer=@words"], "tokenizer: @words names no earlier stage"),
        (["p.yaml", "--columns", "tokens"], "--columns"),
        (["a.txt", "--limit", "2"], "--limit"),
    ],
)
def test_what_cannot_be_shown_is_refused(command: Command, spec: str, arguments: list[str], message: str) -> None:
    Path("t.yaml").write_text("kind: tokenizer\ncorpus: {files: [a.txt]}\n")
    Path("empty.txt").touch()
    outcome = command("corpus", "show", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.heavy
def test_examples_are_shown_without_torch_and_ray(command: Command, spec: str) -> None:
    code = f"""import sys
from orchestrator.cli.entry import run_command_line
status = run_command_line(["corpus", "show", {spec!r}, "-o", "shown.txt"])
print(status, sorted({{"torch", "ray"}} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "0 []\n"

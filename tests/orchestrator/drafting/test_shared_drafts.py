"""Drafts of published data sets: the kind of task is found, and a run could begin.

Alone: pytest tests/orchestrator/drafting/test_shared_drafts.py
"""

from pathlib import Path

import pytest

from orchestrator.drafting.draft import draft_spec
from orchestrator.drafting.writing import write_draft
from orchestrator.specs.loading import load_spec
from orchestrator.specs.parts import task_of
from orchestrator.specs.pipeline import stages_of
from tests.orchestrator.drafting.made_files import request_for
from tests.shared_data import shared_file


@pytest.mark.parametrize(
    ("files", "kind", "columns"),
    [
        (("glue/MRPC/train.tsv.gz", "glue/MRPC/dev.tsv.gz"), "classification", ("#1 String", "#2 String")),
        (("glue/STS-B/train.tsv.gz", "glue/STS-B/dev.tsv.gz"), "regression", ("sentence1", "sentence2")),
        (("glue/SST-2/dev.tsv.gz",), "classification", ("sentence",)),
        (("classification/Subj/test.jsonl.gz",), "classification", ("text",)),
        (("ner/wikigold/wikigold.conll.txt.gz",), "ner", ()),
        (("squad/xquad.en.json.gz",), "qa", ()),
    ],
)
@pytest.mark.heavy
def test_the_kind_of_a_published_task_is_found(
    tmp_path: Path, files: tuple[str, ...], kind: str, columns: tuple[str, ...]
) -> None:
    made = draft_spec(request_for(tmp_path, *map(shared_file, files)))
    write_draft(made)
    task = task_of(stages_of(load_spec(made.spec_path))["finetuning"])
    assert task is not None
    assert (task.head, task.text_columns) == (kind, columns)


def test_published_text_is_for_pretraining(tmp_path: Path) -> None:
    made = draft_spec(request_for(tmp_path, shared_file("pretrain/wikitext-2/valid.txt.gz")))
    write_draft(made)
    assert list(stages_of(load_spec(made.spec_path))) == ["tokenizer", "pretraining"]

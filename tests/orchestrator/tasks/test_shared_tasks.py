"""Every task of the shared data: official counts, and one known record each.

Alone: pytest tests/orchestrator/tasks/test_shared_tasks.py
"""

from collections import Counter

import pytest

from orchestrator.specs import TaskSpec
from orchestrator.tasks import load_task
from tests.shared_data import shared_file

COUNTS = {
    "sst2": ("glue/SST-2", {"train": 67349, "validation": 872}),
    "mrpc": ("glue/MRPC", {"train": 3668, "validation": 408}),
    "stsb": ("glue/STS-B", {"train": 5749, "validation": 1500}),
    "wnli": ("glue/WNLI", {"train": 635, "validation": 71}),
    "qnli": ("glue/QNLI", {"validation": 5463}),
    "qqp": ("glue/QQP-subset", {"train": 20496, "validation": 3000}),
    "conll2003": ("ner/conll2003", {"train": 14041, "validation": 3250, "test": 3453}),
    "wnut17": ("ner/wnut17", {"train": 3394, "validation": 1009, "test": 1287}),
    "squad": ("squad", {"train": 87599, "validation": 10570}),
}


@pytest.mark.parametrize("task_id", COUNTS)
@pytest.mark.heavy
def test_official_counts_are_read_without_a_broken_record(task_id: str) -> None:
    folder, expected = COUNTS[task_id]
    task = load_task(TaskSpec(id=task_id, folder=str(shared_file(folder))))
    reads = {split: task.read(split) for split in task.splits}
    assert {split: len(read.examples) for split, read in reads.items()} == expected
    assert {(read.num_bad_records, read.num_repaired) for read in reads.values()} == {(0, 0)}


def test_cola_is_read_without_a_header() -> None:
    train = str(shared_file("glue/CoLA/train.tsv.gz"))
    task = load_task(TaskSpec(id="cola", files={"train": train, "validation": train}))
    examples = task.examples("train")
    assert len(examples) == 8551
    assert examples[0].text == "Our friends won't buy this analysis, let alone the next one we propose."


def test_mrpc_keeps_its_quotation_marks() -> None:
    task = load_task(TaskSpec(id="mrpc", folder=str(shared_file("glue/MRPC"))))
    first = task.examples("train")[0]
    assert '"the witness"' in first.text
    assert Counter(example.label for example in task.examples("train")) == {"equivalent": 2474, "not_equivalent": 1194}


def test_conll2003_has_its_published_numbers_of_entities() -> None:
    task = load_task(TaskSpec(id="conll2003", folder=str(shared_file("ner/conll2003"))))
    entities = Counter(tag[2:] for example in task.examples("test") for tag in example.tags if tag[0] == "B")
    assert entities == {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}

"""Findings of a fine-tuning's draft, for a person: what its files hold and what is amiss with them."""

from collections.abc import Iterator, Mapping

from orchestrator.drafting.columns import TableFacts
from orchestrator.drafting.draft_parts import Finding, share_text
from orchestrator.drafting.examples import SplitFacts, num_leaks
from orchestrator.drafting.task_choice import TaskChoice
from orchestrator.drafting.text import words_within
from orchestrator.progress import counted
from orchestrator.results import Split
from orchestrator.tasks import TASK_TYPES, TaskDefinition

_LABELS_SHOWN = 6
_TOPICS: Mapping[Split, str] = {"train": "data", "validation": "dev", "test": "test"}
_FEW_VALIDATION = 20
"""Examples for validation below which a single one moves the score by more than 5 points."""
_LAYOUTS = {"ner": "CoNLL columns", "qa": "SQuAD's JSON"}
"""Layout of files that are no tables, by the kind of task that reads them."""
_OUTLIER = 50
"""Times the length of long examples from which on a longer one is worth a word."""
_IMBALANCE = 20
"""Times that the commonest label may be as common as the rarest before it is worth a word."""


def data_findings(
    choice: TaskChoice, table: TableFacts | None, splits: Mapping[Split, SplitFacts], tokens_per_word: float
) -> Iterator[Finding]:
    """Yield what the files hold, and what is amiss with them."""
    layout = table.layout if table is not None else _LAYOUTS[choice.kind]
    train = splits["train"]
    for split, facts in splits.items():
        yield Finding(_TOPICS[split], f"{facts.path}: {layout}, {counted(facts.num_examples, 'example')}")
    yield Finding("task", _task_text(choice, table))
    for remark in choice.remarks:
        yield Finding("", remark)
    if train.labels:
        yield Finding("labels", _labels_text(train))
    yield from _positive_label(choice, train)
    yield Finding("length", _length_text(train, tokens_per_word))
    for facts in splits.values():
        yield from _problems(facts)
    for facts in splits.values():
        leaks = 0 if facts is train else num_leaks(train, facts)
        if leaks:
            yield Finding(
                "leak",
                f"{leaks:,} of {facts.num_examples:,} examples of {facts.path} have a text that is in {train.path} as "
                "well: scores will be too good",
            )


def _task_text(choice: TaskChoice, table: TableFacts | None) -> str:
    if choice.kind == "qa":
        return "qa: the answer is a part of the passage"
    if table is None:
        return "ner: a BIO tag for each word"
    if choice.kind == "embedding":
        far = f", far from {', '.join(choice.negative_columns)}" if choice.negative_columns else ""
        return f"embedding: vectors of {choice.text_columns[0]} near those of {choice.text_columns[1]}{far}"
    label = ", ".join(map(shown_label, choice.label_columns or (str(choice.label_column),)))
    texts = " and ".join(map(shown_label, choice.text_columns))
    seen = "" if table.is_whole else f" (by the first {table.num_rows:,} rows)"
    separator = f", several apart by {choice.label_separator!r}" if choice.label_separator else ""
    return f"{choice.kind}: {label} from {texts}{separator}{seen}"


def _labels_text(train: SplitFacts) -> str:
    total = train.labels.total()
    common = train.labels.most_common()
    shown = ", ".join(f"{shown_label(label)}: {share_text(count, total)}" for label, count in common[:_LABELS_SHOWN])
    more = f", and {len(common) - _LABELS_SHOWN} more" if len(common) > _LABELS_SHOWN else ""
    (_, most), (rarest, least) = common[0], common[-1]
    note = f"; unbalanced: {shown_label(rarest)} has {least:,}" if most > _IMBALANCE * least else ""
    return shown + more + note


def _positive_label(choice: TaskChoice, train: SplitFacts) -> Iterator[Finding]:
    """Yield the class that `f1` is the score of, where it is of one."""
    assert choice.kind != "pretraining", "labeled files are fine-tuned on"
    labels = tuple(sorted(train.labels))
    task_type = TASK_TYPES[choice.kind]
    positive = task_type.positive_label(TaskDefinition(id="", type=task_type, labels=labels, metric=""))
    if positive is not None:
        yield Finding(
            "",
            f"f1 is the score of {shown_label(positive)}: of {' and '.join(map(shown_label, labels))} it is the "
            "second; task.labels in the spec can say another order",
        )


def num_tokens(num_words: float, tokens_per_word: float) -> int:
    """Tokens of an example of so many words, special ones included."""
    return round(num_words * tokens_per_word) + 3


def _length_text(train: SplitFacts, tokens_per_word: float) -> str:
    """Tokens of the example in the middle and of long ones, and of the longest where it is out of all proportion."""
    middle, long, longest = (num_tokens(words_within(train.words, share), tokens_per_word) for share in (0.5, 0.95, 1))
    text = f"about {middle:,} tokens in the middle, 19 of 20 within {long:,}"
    if longest > _OUTLIER * long:
        text += f"; the longest has {longest:,}: look whether it is one example, as of a quote that is not closed"
    return text


def cut_findings(train: SplitFacts, tokens_per_word: float, max_seq_length: int) -> Iterator[Finding]:
    """Yield how many examples are longer than what is read of them, and how much is not read."""
    tokens = [(num_tokens(words, tokens_per_word), count) for words, count in train.words.items()]
    cut = [(length - max_seq_length, count) for length, count in tokens if length > max_seq_length]
    if cut:
        lost, total = (sum(length * count for length, count in lengths) for lengths in (cut, tokens))
        yield Finding(
            "cut",
            f"about {sum(count for _, count in cut):,} of {train.num_examples:,} examples are longer than "
            f"the {max_seq_length} tokens of max_seq_length: {share_text(lost, total)} of all text are not read; "
            "recipe.long_documents: mean reads them in windows",
        )


def _problems(facts: SplitFacts) -> Iterator[Finding]:
    bad = facts.bad
    if bad.count:
        yield Finding(
            "left out", f"{facts.path}: {counted(bad.count, 'broken record')}, the first at {bad.first_problem}"
        )
    if bad.repair_note:
        yield Finding("mended", bad.repair_note)
    for remark, count in bad.remarks.items():
        yield Finding("read", f"{facts.path}: {remark}: {count:,}")
    if facts.num_empty:
        yield Finding("empty", f"{facts.path}: {counted(facts.num_empty, 'example')} without a word")
    num_doubles, num_contradictions = facts.doubles
    if num_doubles:
        other = f", {num_contradictions:,} of them with other labels" if num_contradictions else ""
        yield Finding(
            "doubles", f"{facts.path}: {counted(num_doubles, 'example')} whose text stands there before{other}"
        )


def validation_findings(validation: SplitFacts, train: SplitFacts) -> Iterator[Finding]:
    """Yield what a score on the validation examples cannot tell: of labels without any, and of very few."""
    missing = [label for label, _ in train.labels.most_common() if not validation.labels[label]]
    if missing:
        shown = ", ".join(map(shown_label, missing[:_LABELS_SHOWN]))
        more = f" and {len(missing) - _LABELS_SHOWN} more" if len(missing) > _LABELS_SHOWN else ""
        yield Finding("", f"not in validation: {shown}{more}: no score tells how well this is learned; add examples")
    if validation.is_constant:
        yield Finding(
            "", f"all scores of {validation.path} are the same: there is no correlation to measure; add others"
        )
    count = validation.num_examples
    if count < _FEW_VALIDATION:
        measure = "measures next to nothing, it is" if count == 1 else "measure next to nothing, each is"
        points = f"{100 / max(1, count):.0f} points of the score"
        yield Finding("", f"{counted(count, 'example')} for validation {measure} {points}: add examples")


def shown_label(label: str) -> str:
    """A label or the name of a column in a message, quoted where blanks at its ends would not be seen.

    >>> print(shown_label("bad"), shown_label(" bad"))
    bad ' bad'
    """
    return label[:40] if label == label.strip() else repr(label[:40])

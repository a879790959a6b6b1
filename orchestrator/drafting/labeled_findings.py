"""Findings of a fine-tuning's draft, for a person: what its files hold and what is amiss, its split, model, sizes."""

from collections import Counter
from collections.abc import Iterator, Mapping

from orchestrator.drafting.columns import TableFacts
from orchestrator.drafting.draft_parts import Finding, epochs_text, minutes_text, share_text
from orchestrator.drafting.labeled_facts import SplitFacts, num_leaks
from orchestrator.drafting.start_model import StartModel, registered_starts
from orchestrator.drafting.task_choice import TaskChoice
from orchestrator.drafting.task_sizes import TaskSizes
from orchestrator.drafting.time_budget import TimeBudget
from orchestrator.progress import counted
from orchestrator.results import Split
from orchestrator.settings import Settings
from orchestrator.specs.task import Head
from orchestrator.tasks import TASK_TYPES, TaskDefinition
from orchestrator.tasks.task import SPLITS

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
    choice: TaskChoice,
    table: TableFacts | None,
    splits: Mapping[Split, SplitFacts],
    tokens_per_word: float,
    *,
    is_split_here: bool,
) -> Iterator[Finding]:
    """Yield what the files hold, and what is amiss with them."""
    layout = table.layout if table is not None else _LAYOUTS[choice.kind]
    for split in SPLITS:
        if split in splits:
            facts = splits[split]
            yield Finding(_TOPICS[split], f"{facts.path}: {layout}, {counted(facts.num_examples, 'example')}")
    yield Finding("task", _task_text(choice, table))
    for remark in choice.remarks:
        yield Finding("", remark)
    train = splits["train"]
    if train.labels:
        yield Finding("labels", _labels_text(train))
    assert choice.kind != "pretraining", "labeled files are fine-tuned on"
    positive = _positive_label(choice.kind, tuple(sorted(train.labels)))
    if positive is not None:
        both = " and ".join(map(shown_label, sorted(train.labels)))
        yield Finding(
            "",
            f"f1 is the score of {shown_label(positive)}: of {both} it is the second; task.labels in the spec can say "
            "another order",
        )
    yield Finding("length", _length_text(train, tokens_per_word))
    for facts in splits.values():
        yield from _problems(facts, is_split_here=is_split_here)
    for split, facts in splits.items():
        leaks = 0 if split == "train" else num_leaks(train, facts)
        if leaks:
            yield Finding(
                "leak",
                f"{leaks:,} of {facts.num_examples:,} examples of {facts.path} have a text that is in {train.path} as "
                "well: scores will be too good",
            )


def split_finding(num_train: int, num_validation: int, seed: int, *, has_labels: bool, is_complete: bool) -> Finding:
    """The finding of a split that is made here.

    Args:
        is_complete: whether every label is in both parts.
    """
    shares = f", {'' if is_complete else 'other '}labels in the same shares" if has_labels else ""
    counts = f"{num_train:,} for training, {num_validation:,} for validation"
    return Finding("split", f"{counts} by seed {seed}; no text is in both{shares}")


def validation_findings(num_examples: int, num_labels: Counter[str], train: SplitFacts) -> Iterator[Finding]:
    """Yield what a score on the validation examples cannot tell: of labels without any, and of very few.

    Args:
        num_labels: number of validation examples by label, as far as labels are counted.
    """
    missing = [label for label, _ in train.labels.most_common() if not num_labels[label]]
    if missing:
        shown = ", ".join(map(shown_label, missing[:_LABELS_SHOWN]))
        more = f" and {len(missing) - _LABELS_SHOWN} more" if len(missing) > _LABELS_SHOWN else ""
        yield Finding("", f"not in validation: {shown}{more}: no score tells how well this is learned; add examples")
    if 0 < num_examples < _FEW_VALIDATION:
        measure = "measures next to nothing, it is" if num_examples == 1 else "measure next to nothing, each is"
        points = f"{100 / num_examples:.0f} points of the score"
        yield Finding("", f"{counted(num_examples, 'example')} for validation {measure} {points}: add examples")


def model_findings(model: StartModel | None, settings: Settings) -> Iterator[Finding]:
    """Yield which weights the fine-tuning starts from; without a model also those that are registered."""
    if model is not None:
        yield Finding("model", f"starts from {model.name}")
        return
    yield Finding(
        "model",
        "random weights (BERT-tiny) and a vocabulary of these texts: a baseline. Starting from a pretrained model "
        "is far better: --model NAME_OR_FOLDER, a folder in Hugging Face's layout or a registered name",
    )
    names = registered_starts(settings)
    if names:
        yield Finding("", f"registered here: {', '.join(names)}")


def size_finding(sizes: TaskSizes, budget: TimeBudget) -> Finding:
    """The trials and epochs, their time by estimate, and what to do where it is not enough."""
    rates, seeds = len(sizes.learning_rates), len(sizes.seeds)
    trials = f"{rates} learning {'rate' if rates == 1 else 'rates'} × {seeds} {'seed' if seeds == 1 else 'seeds'}"
    took = f"{trials}, {epochs_text(sizes.epochs)}: {minutes_text(sizes.minutes)} of training ({budget.text})"
    if not sizes.fits:
        took += f"; more than the {budget.minutes:g} asked for: give more --minutes or less data"
    elif sizes.epochs < 1:
        took += "; not all examples are read in this time: give more --minutes"
    return Finding("sizes", took)


def _task_text(choice: TaskChoice, table: TableFacts | None) -> str:
    if table is None:
        return {"ner": "ner: a BIO tag for each word", "qa": "qa: the answer is a part of the passage"}[choice.kind]
    texts = " and ".join(map(shown_label, choice.text_columns))
    seen = "" if table.is_whole else f" (by the first {table.num_rows:,} rows)"
    separator = f", several apart by {choice.label_separator!r}" if choice.label_separator else ""
    return f"{choice.kind}: {shown_label(str(choice.label_column))} from {texts}{separator}{seen}"


def _positive_label(kind: Head, labels: tuple[str, ...]) -> str | None:
    """The class that `f1` of a person's own task is the score of; None where it is of all, or there is no such."""
    task_type = TASK_TYPES[kind]
    return task_type.positive_label(TaskDefinition(id="", type=task_type, labels=labels, metric=""))


def num_tokens(num_words: float, tokens_per_word: float) -> int:
    """Tokens of an example of so many words, special ones included."""
    return round(num_words * tokens_per_word) + 3


def cut_findings(train: SplitFacts, tokens_per_word: float, max_seq_length: int) -> Iterator[Finding]:
    """Yield how many examples are longer than what is read of them, and how much is not read."""
    tokens = [(num_tokens(words, tokens_per_word), count) for words, count in train.words.items()]
    cut = [(length - max_seq_length, count) for length, count in tokens if length > max_seq_length]
    if cut:
        lost, total = (sum(length * count for length, count in lengths) for lengths in (cut, tokens))
        yield Finding(
            "cut",
            f"about {sum(count for _, count in cut):,} of {train.num_examples:,} examples are longer than "
            f"the {max_seq_length} tokens of max_seq_length: {share_text(lost, total)} of all text are not read",
        )


def _length_text(train: SplitFacts, tokens_per_word: float) -> str:
    """Tokens of the example in the middle and of long ones, and of the longest where it is out of all proportion."""
    middle, long, longest = (
        num_tokens(words, tokens_per_word)
        for words in (train.words_within(0.5), train.words_within(0.95), max(train.words, default=0))
    )
    text = f"about {middle:,} tokens in the middle, 19 of 20 within {long:,}"
    if longest > _OUTLIER * long:
        text += f"; the longest has {longest:,}: look whether it is one example, as of a quote that is not closed"
    return text


def _labels_text(train: SplitFacts) -> str:
    total = train.labels.total()
    common = train.labels.most_common()
    shown = ", ".join(f"{shown_label(label)}: {share_text(count, total)}" for label, count in common[:_LABELS_SHOWN])
    more = f", and {len(common) - _LABELS_SHOWN} more" if len(common) > _LABELS_SHOWN else ""
    (_, most), (rarest, least) = common[0], common[-1]
    note = f"; unbalanced: {shown_label(rarest)} has {least:,}" if most > _IMBALANCE * least else ""
    return shown + more + note


def shown_label(label: str) -> str:
    """A label or the name of a column in a message, quoted where blanks at its ends would not be seen.

    >>> print(shown_label("bad"), shown_label(" bad"))
    bad ' bad'
    """
    return label[:40] if label == label.strip() else repr(label[:40])


def _problems(facts: SplitFacts, *, is_split_here: bool) -> Iterator[Finding]:
    if facts.num_bad_records:
        yield Finding(
            "left out",
            f"{facts.path}: {counted(facts.num_bad_records, 'broken record')}, the first at {facts.first_problem}",
        )
    if facts.repair_note:
        yield Finding("mended", facts.repair_note)
    for remark, count in facts.remarks.items():
        yield Finding("read", f"{facts.path}: {remark}: {count:,}")
    if facts.num_empty:
        done = "left out" if is_split_here else "kept as they are"
        yield Finding("empty", f"{facts.path}: {counted(facts.num_empty, 'example')} without a word, {done}")
    if facts.num_doubles > 0:
        other = f", {facts.num_contradictions:,} of them with other labels" if facts.num_contradictions else ""
        yield Finding(
            "doubles", f"{facts.path}: {counted(facts.num_doubles, 'example')} whose text stands there before{other}"
        )

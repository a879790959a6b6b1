"""Draft of a fine-tuning on labeled files: a sweep from a model, or tokenizer and sweep from random weights."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from bert_core.config import BertConfig
from orchestrator.drafting.columns import TableFacts
from orchestrator.drafting.draft_parts import (
    MARKS_FINDING,
    Draft,
    Finding,
    Naming,
    minutes_text,
    spec_header,
    spec_text,
)
from orchestrator.drafting.examples import (
    check_splits,
    choose_validation,
    read_split,
    split_columns,
    split_lines,
    vocabulary_texts,
)
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.sizes import TaskNumbers, TaskSizes, TimeBudget, task_sizes
from orchestrator.drafting.start_model import StartModel, registered_starts
from orchestrator.drafting.task_choice import TaskChoice
from orchestrator.drafting.task_findings import cut_findings, data_findings, num_tokens, validation_findings
from orchestrator.drafting.text import Characters, vocabulary_size, words_within
from orchestrator.results import Split
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.cell_values import NO_LABEL_MARKS, read_label
from orchestrator.tasks.table_files import column_names
from orchestrator.tasks.text_examples import LabelColumn
from orchestrator.tasks.text_files import BadRecords

_QA_LENGTHS = {"max_seq_length": 192, "max_query_length": 48, "doc_stride": 64}
"""Least length of a window of a passage, and the lengths that fit one so short."""
_PARTS: Mapping[Split, str] = {"train": "train", "validation": "dev", "test": "test"}
"""Part of a file's name by its split."""
_MUCH_UNKNOWN = 0.1
"""Share of unknown tokens from which on a model hardly reads a text."""


class TaskDraft:
    """A fine-tuning that is being drafted: its files are read when the object is made."""

    def __init__(
        self,
        choice: TaskChoice,
        roles: Mapping[Split, str],
        table: TableFacts | None,
        request: DraftRequest,
        naming: Naming,
    ) -> None:
        """Read all files to their ends, and keep some of the training examples where none are for validation.

        Raises: InputError, TaskDataError where there is nothing to learn from.
        """
        self.choice, self.table, self.request, self.naming = choice, table, request, naming
        self.model = StartModel.find(request.model, request.settings) if request.model else None
        self.budget = TimeBudget(request.minutes, request.num_cores)
        self.notes: list[Finding] = []
        self.files: dict[Split, str] = dict(roles)
        self.source = self._task(self.files)
        self._leave_out_unlabeled_test()
        self.splits = {split: read_split(self.source, path) for split, path in self.files.items()}
        check_splits(self.source, self.splits)
        self.train = self.splits["train"]
        self.kept = frozenset[int]()
        self.learned, self.validation = self.train, self.splits.get("validation", self.train)
        if "validation" not in self.files:
            self.kept = choose_validation(self.train, request.seed)
            self.learned, self.validation = (self.train.part(self.kept, inside=inside) for inside in (False, True))

    def draft(self) -> Draft:
        """The spec, the files beside it, and what is told."""
        side_files = {}
        task = self.source.model_copy(update={"files": self.files, "on_bad_record": self._on_bad_record})
        if self.kept:
            origins: dict[Split, str] = {"train": self.train.path, "validation": self.train.path, **self.files}
            paths = {split: self.naming.beside(f"{_PARTS[split]}.jsonl") for split in origins}
            for split, path in paths.items():
                kept = frozenset[int]() if split == "test" else self.kept
                side_files[path] = split_lines(self.source, origins[split], kept, inside=split == "validation")
            task = task.model_copy(update={"files": paths, **split_columns(self.source)})
        values: dict[str, Any] = self._sweep(task)
        above = ""
        comments = {}
        if self.model is None:
            texts_path = self.naming.beside("texts.txt")
            side_files[texts_path] = vocabulary_texts(self.source, self.train.path, self.kept)
            tokenizer = {
                "kind": "tokenizer",
                "corpus": {"files": [texts_path]},
                "vocab_size": vocabulary_size(self.train.num_words, self._characters.num_common),
                "lowercase": self.choice.kind != "ner",
            }
            if self._characters.has_meaningful_marks:
                tokenizer["strip_accents"] = False
            above = "stages.finetuning."
            values = {"kind": "pipeline", "stages": {"tokenizer": tokenizer, "finetuning": values}}
            comments = {
                "stages.tokenizer": "A vocabulary for random weights, learned from the training texts.",
                "stages.tokenizer.vocab_size": f"As much as about {self.train.num_words:,} words can teach.",
                "stages.finetuning": "A baseline: random weights have read nothing but these examples. A pretrained "
                "model is far better; start from one with:\n"
                f"  {replace(self.request, model='NAME').command}",
            }
        comments |= {f"{above}{key}": text for key, text in self._comments.items()}
        parse_spec(values)
        text = spec_text(values, comments, spec_header(self.request, self.naming.spec_path))
        return Draft(self.naming.spec_path, text, tuple(self._findings()), side_files)

    def _findings(self) -> Iterator[Finding]:
        yield from data_findings(self.choice, self.table, self.splits, self._tokens_per_word)
        if self._is_cut:
            yield from cut_findings(self.train, self._tokens_per_word, self._sizes.max_seq_length)
        if self.model is None and self._characters.has_meaningful_marks:
            yield MARKS_FINDING
        if self.kept:
            is_complete = self.train.labels.keys() <= self.validation.labels.keys()
            shares = f", {'' if is_complete else 'other '}labels in the same shares" if self.train.labels else ""
            counts = f"{self.learned.num_examples:,} for training, {self.validation.num_examples:,} for validation"
            yield Finding("split", f"{counts} by seed {self.request.seed}; no text is in both{shares}")
        yield from validation_findings(self.validation, self.train)
        yield from self.notes
        yield from self._model_findings()
        yield self._size_finding

    def _model_findings(self) -> Iterator[Finding]:
        """Yield which weights the fine-tuning starts from; without a model also those that are registered."""
        if self.model is not None:
            yield Finding("model", f"starts from {self.model.name}")
            return
        yield Finding(
            "model",
            "random weights (BERT-tiny) and a vocabulary of these texts: a baseline. Starting from a pretrained model "
            "is far better: --model NAME, of one on the hub (bert-base-uncased), a registered model or a folder",
        )
        names = registered_starts(self.request.settings)
        if names:
            yield Finding("", f"registered here: {', '.join(names)}")

    @property
    def _size_finding(self) -> Finding:
        """The trials and epochs, their time by estimate, and what to do where it is not enough."""
        sizes, budget = self._sizes, self.budget
        rates, seeds = len(sizes.learning_rates), len(sizes.seeds)
        trials = f"{rates} learning {'rate' if rates == 1 else 'rates'} × {seeds} {'seed' if seeds == 1 else 'seeds'}"
        epochs = "1 epoch" if sizes.epochs == 1 else f"{sizes.epochs:g} epochs"
        took = f"{trials}, {epochs}: {minutes_text(sizes.minutes)} of training ({budget.text})"
        if not sizes.fits:
            took += f"; more than the {budget.minutes:g} asked for: give more --minutes or less data"
        elif sizes.epochs < 1:
            took += "; not all examples are read in this time: give more --minutes"
        return Finding("sizes", took)

    def _task(self, files: Mapping[Split, str]) -> TaskSpec:
        choice = self.choice
        return TaskSpec(
            id=self.naming.task_id,
            head=choice.kind,  # type: ignore[arg-type]  # "pretraining" never comes here
            text_columns=choice.text_columns,
            label_column=choice.label_column,
            label_columns=choice.label_columns,
            negative_columns=choice.negative_columns,
            objective="in_batch_negatives" if choice.kind == "embedding" else None,
            label_separator=choice.label_separator or "|",
            files=dict(files),
            on_bad_record="skip",
        )

    def _leave_out_unlabeled_test(self) -> None:
        label, path = self.choice.label_column, self.files.get("test")
        if not label or not path:
            return
        if label not in column_names(path, BadRecords(path, "skip")):
            self.notes.append(Finding("test", f"{path} has no column {label!r}, so it is left out"))
        elif all(_is_unlabeled(value) for value in LabelColumn(path, label, True, Counter()).values):
            self.notes.append(Finding("test", f"{path} has no label in {label!r}, so it is left out"))
        else:
            return
        del self.files["test"]

    @property
    def _on_bad_record(self) -> str:
        """The rule for the files of the spec: those that are written here have no broken records."""
        return "skip" if not self.kept and any(facts.bad.count for facts in self.splits.values()) else "error"

    @cached_property
    def _characters(self) -> Characters:
        return Characters(text for texts in self.train.sample for text in texts)

    @cached_property
    def _tokens_per_word(self) -> float:
        """Tokens of a word; of the model's tokenizer, measured on the first examples."""
        if self.model is None:
            return self._characters.tokens_per_word
        per_word, unknown_share = self.model.cut([" ".join(parts) for parts in self.train.sample])
        if unknown_share > _MUCH_UNKNOWN:
            self.notes.append(
                Finding(
                    "unknown",
                    f"{100 * unknown_share:.0f} % of the tokens of these texts are unknown to {self.model.name} "
                    "([UNK]), which learned its vocabulary from other text: start from another model",
                )
            )
        return per_word

    @property
    def _is_cut(self) -> bool:
        """Whether the end of a long example is left out; other kinds of tasks read it in further windows."""
        return self.choice.kind not in ("ner", "qa")

    @cached_property
    def _long_tokens(self) -> int:
        """Tokens that 19 of 20 examples do not exceed."""
        return num_tokens(words_within(self.train.words, 0.95), self._tokens_per_word)

    @cached_property
    def _sizes(self) -> TaskSizes:
        numbers = TaskNumbers(
            num_train=self.learned.num_examples,
            num_validation=self.validation.num_examples,
            mean_tokens=num_tokens(self.train.num_words / self.train.num_examples, self._tokens_per_word),
            long_tokens=self._long_tokens,
            is_pretrained=self.model is not None,
            config=BertConfig.from_size("tiny", vocab_size=1000) if self.model is None else self.model.config,
            splits_long_examples=not self._is_cut,
            least_length=_QA_LENGTHS["max_seq_length"] if self.choice.kind == "qa" else 0,
        )
        return task_sizes(numbers, self.budget)

    def _sweep(self, task: TaskSpec) -> dict[str, Any]:
        sizes = self._sizes
        start: dict[str, Any] = (
            {"init_from": self.model.name}
            if self.model
            else {"init_from": "random", "tokenizer": "@tokenizer", "size": "tiny", "dropout": 0.1}
        )
        lengths = {"max_seq_length": sizes.max_seq_length}
        if self.choice.kind == "qa" and sizes.max_seq_length < 256:
            lengths = {**_QA_LENGTHS, **lengths}
        return {
            "kind": "sweep",
            "task": task.model_dump(mode="json", exclude_defaults=True),
            "recipe": {**start, **lengths, "batch_size": sizes.batch_size, "epochs": sizes.epochs},
            "space": {"learning_rate": list(sizes.learning_rates)},
            "seeds": list(sizes.seeds),
        }

    @property
    def _comments(self) -> dict[str, str]:
        """Comments of the sweep's fields."""
        sizes = self._sizes
        label_field = "task.label_columns" if self.choice.label_columns else "task.label_column"
        return {
            "recipe.max_seq_length": "Tokens: 19 of 20 examples fit whole."
            if sizes.max_seq_length >= self._long_tokens
            else "Tokens: longer examples are cut, or read in several windows.",
            "recipe.epochs": f"{self.learned.num_examples:,} training examples; all of it takes "
            f"{minutes_text(sizes.minutes)} ({self.budget.text}).",
            "space": "Each value here is tried with each seed; lists in other fields of recipe may be added.",
            "task.on_bad_record": "Some records are broken; `error` in place of `skip` would name the first.",
            label_field: next(iter(self.choice.remarks), ""),
        }


def _is_unlabeled(value: object) -> bool:
    """Whether a cell stands for no label; a list says which there are."""
    return not isinstance(value, list | dict) and read_label(value) in (None, *NO_LABEL_MARKS)

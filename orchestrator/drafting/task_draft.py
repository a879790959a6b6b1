"""Draft of a fine-tuning on labeled files: a sweep from a model, or tokenizer and sweep from random weights."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_core.config import BertConfig
from orchestrator.drafting.columns import TableFacts
from orchestrator.drafting.dev_split import choose_validation
from orchestrator.drafting.draft_parts import MARKS_FINDING, Draft, Finding, Naming, minutes_text
from orchestrator.drafting.input_layout import Layout
from orchestrator.drafting.labeled_facts import check_columns, check_splits, read_split
from orchestrator.drafting.labeled_findings import (
    cut_findings,
    data_findings,
    model_findings,
    num_tokens,
    size_finding,
    split_finding,
    validation_findings,
)
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.spec_text import SpecDraft, spec_header
from orchestrator.drafting.split_files import split_chunks, split_ending, vocabulary_texts
from orchestrator.drafting.start_model import StartModel
from orchestrator.drafting.task_choice import TaskChoice
from orchestrator.drafting.task_sizes import TaskNumbers, TaskSizes, choose_sizes
from orchestrator.drafting.time_budget import TimeBudget
from orchestrator.drafting.vocabulary import Characters, vocabulary_size
from orchestrator.results import Split
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.table_files import column_names
from orchestrator.tasks.text_files import BadRecords

_QA_LENGTHS = {"max_seq_length": 192, "max_query_length": 48, "doc_stride": 64}
"""Least length of a window of a passage, and the lengths that fit one so short."""
_MUCH_UNKNOWN = 0.1
"""Share of unknown tokens from which on a model hardly reads a text."""


class TaskDraft:
    """A fine-tuning that is being drafted: its files are read when the object is made."""

    def __init__(
        self,
        choice: TaskChoice,
        layout: Layout,
        roles: Mapping[Split, str],
        table: TableFacts | None,
        request: DraftRequest,
        naming: Naming,
    ) -> None:
        """Read all files to their ends, and keep some of the training examples where none are for validation.

        Raises: InputError, TaskDataError where there is nothing to learn from.
        """
        self.choice, self.layout, self.table, self.request, self.naming = choice, layout, table, request, naming
        self.model = StartModel.find(request.model, request.settings) if request.model else None
        self.budget = TimeBudget(request.minutes, request.num_cores)
        self.notes: list[Finding] = []
        self.files: dict[Split, str] = dict(roles)
        self.source = roles["train"]
        task = self._task(self.files, skips=True)
        self._leave_out_unlabeled_test()
        if table is not None:
            check_columns(task, self.files)
        self.splits = {split: read_split(task, path) for split, path in self.files.items()}
        check_splits(task, self.splits)
        self.train = self.splits["train"]
        self.kept: frozenset[int] = frozenset()
        if "validation" not in self.files:
            self.kept = choose_validation(self.train, request.seed)

    def draft(self) -> Draft:
        """The spec, the files beside it, and what is told."""
        sizes = self._sizes()
        side_files = dict(self._split_files())
        splits: tuple[Split, ...] = ("train", "validation")
        files = {**self.files, **dict(zip(splits, side_files, strict=False))}
        task = self._task(files, skips=self._has_broken_records)
        if self.model is None:
            source = self._task({"train": self.source}, skips=True)
            side_files[self._texts_path] = vocabulary_texts(source, self.source, self.kept)
            spec = self._pipeline(task, sizes)
        else:
            spec = SpecDraft(self._sweep(task, sizes), self._comments(sizes, ""))
        parse_spec(spec.values)
        findings = [
            *data_findings(self.choice, self.table, self.splits, self._tokens_per_word, is_split_here=bool(self.kept)),
            *(cut_findings(self.train, self._tokens_per_word, sizes.max_seq_length) if self._is_cut else ()),
            *([MARKS_FINDING] if self.model is None and self._characters.has_meaningful_marks else []),
            *([self._split_finding] if self.kept else []),
            *validation_findings(self._num_validation, self._validation_labels, self.train),
            *self.notes,
            *model_findings(self.model, self.request.settings),
            size_finding(sizes, self.budget),
        ]
        text = spec.text(spec_header(self.request, self.naming.spec_path))
        return Draft(self.naming.spec_path, text, tuple(findings), side_files)

    def _task(self, files: Mapping[Split, str], *, skips: bool) -> TaskSpec:
        choice = self.choice
        return TaskSpec(
            id=self.naming.task_id,
            head=choice.kind,  # type: ignore[arg-type]  # "pretraining" never comes here
            text_columns=choice.text_columns,
            label_column=choice.label_column,
            label_separator=choice.label_separator or "|",
            files=dict(files),
            on_bad_record="skip" if skips else "error",
        )

    def _leave_out_unlabeled_test(self) -> None:
        label, path = self.choice.label_column, self.files.get("test")
        if label and path and label not in column_names(path, BadRecords(path, "skip")):
            del self.files["test"]
            self.notes.append(Finding("test", f"{path} has no column {label!r}, so it is left out"))

    @property
    def _has_broken_records(self) -> bool:
        """Whether files of the spec have broken records: rows of a split that is made here are whole."""
        is_rewritten = bool(self.kept) and self.layout != "questions"
        return any(f.num_bad_records for f in self.splits.values() if not (is_rewritten and f is self.train))

    @property
    def _texts_path(self) -> str:
        return self.naming.beside("texts.txt")

    @property
    def _num_validation(self) -> int:
        if "validation" in self.splits:
            return self.splits["validation"].num_examples
        return sum(group in self.kept for group in self.train.row_groups)

    @property
    def _validation_labels(self) -> Counter[str]:
        """Number of validation examples by label."""
        if "validation" in self.splits:
            return self.splits["validation"].labels
        return self.train.labels_within(self.kept)

    @property
    def _num_train(self) -> int:
        if not self.kept:
            return self.train.num_examples
        return self.train.num_examples - self.train.num_empty - self._num_validation

    @property
    def _split_finding(self) -> Finding:
        return split_finding(
            self._num_train,
            self._num_validation,
            self.request.seed,
            has_labels=bool(self.train.labels),
            is_complete=self.train.labels.keys() <= self._validation_labels.keys(),
        )

    def _rows(self, *, kept: bool) -> NDArray[np.bool_]:
        """Whether each record of the file is one that is kept for validation, or one that is not; by its number."""
        rows = np.array(self.train.rows, np.int64)
        chosen = rows[np.fromiter(((group in self.kept) == kept for group in self.train.row_groups), bool)]
        marks = np.zeros(int(rows.max()) + 1, bool)
        marks[chosen[chosen >= 0]] = True
        return marks

    def _split_files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """The files of a split that is made here: training first, then validation."""
        if not self.kept:
            return
        task = self._task({"train": self.source}, skips=True)
        for part, kept in (("train", False), ("dev", True)):
            path = self.naming.beside(part + split_ending(self.source, self.layout))
            # Rows say all, except for questions: these go by their passage.
            is_by_group = self.layout == "questions" and not kept
            groups = self.train.groups.keys() - self.kept if is_by_group else self.kept
            yield path, split_chunks(task, self.source, self.layout, self._rows(kept=kept), groups)

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

    def _sizes(self) -> TaskSizes:
        per_word = self._tokens_per_word
        config = BertConfig.from_size("tiny", vocab_size=1000) if self.model is None else self.model.config
        numbers = TaskNumbers(
            num_train=self._num_train,
            num_validation=self._num_validation,
            mean_tokens=num_tokens(self.train.mean_words, per_word),
            long_tokens=num_tokens(self.train.words_within(0.95), per_word),
            is_pretrained=self.model is not None,
            config=config,
            splits_long_examples=not self._is_cut,
            least_length=_QA_LENGTHS["max_seq_length"] if self.choice.kind == "qa" else 0,
        )
        return choose_sizes(numbers, self.budget)

    def _sweep(self, task: TaskSpec, sizes: TaskSizes) -> dict[str, Any]:
        start: dict[str, Any] = (
            {"init_from": self.model.name}
            if self.model
            else {"init_from": "random", "tokenizer": "@tokenizer", "size": "tiny", "dropout": 0.1}
        )
        recipe = {
            **start,
            "max_seq_length": sizes.max_seq_length,
            "batch_size": sizes.batch_size,
            "epochs": sizes.epochs,
        }
        if self.choice.kind == "qa" and sizes.max_seq_length < 256:
            recipe |= {name: value for name, value in _QA_LENGTHS.items() if name != "max_seq_length"}
        return {
            "kind": "sweep",
            "task": task.model_dump(mode="json", exclude_defaults=True),
            "recipe": recipe,
            "space": {"learning_rate": list(sizes.learning_rates)},
            "seeds": list(sizes.seeds),
        }

    def _pipeline(self, task: TaskSpec, sizes: TaskSizes) -> SpecDraft:
        num_words = self.train.mean_words * self.train.num_examples
        lowercase = self.choice.kind != "ner" and not self._characters.has_meaningful_marks
        tokenizer = {
            "kind": "tokenizer",
            "corpus": {"files": [self._texts_path]},
            "vocab_size": vocabulary_size(num_words, self._characters.num_common),
            "lowercase": lowercase,
        }
        stages = {"tokenizer": tokenizer, "finetuning": self._sweep(task, sizes)}
        comments = {
            "stages.tokenizer": "A vocabulary for random weights, learned from the training texts.",
            "stages.tokenizer.vocab_size": f"As much as about {num_words:,.0f} words can teach.",
            "stages.finetuning": (
                "A baseline: random weights have read nothing but these examples. A pretrained model is far better; "
                f"start from one with:\n  {replace(self.request, model='NAME_OR_FOLDER').command}"
            ),
            **self._comments(sizes, "stages.finetuning."),
        }
        return SpecDraft({"kind": "pipeline", "stages": stages}, comments)

    def _comments(self, sizes: TaskSizes, above: str) -> dict[str, str]:
        comments = {
            "recipe.max_seq_length": "Tokens: 19 of 20 examples fit whole."
            if sizes.max_seq_length >= num_tokens(self.train.words_within(0.95), self._tokens_per_word)
            else "Tokens: longer examples are cut, or read in several windows.",
            "recipe.epochs": f"{self._num_train:,} training examples; all of it takes {minutes_text(sizes.minutes)} "
            f"({self.budget.text}).",
            "space": "Each value here is tried with each seed; lists in other fields of recipe may be added.",
        }
        if self._has_broken_records:
            comments["task.on_bad_record"] = "Some records are broken; `error` in place of `skip` would name the first."
        if self.choice.label_column:
            comments["task.label_column"] = self.choice.remarks[0] if self.choice.remarks else ""
        return {f"{above}{key}": text for key, text in comments.items()}


def draft_task(
    choice: TaskChoice,
    layout: Layout,
    roles: Mapping[Split, str],
    table: TableFacts | None,
    request: DraftRequest,
    naming: Naming,
) -> Draft:
    """Draft the spec of a fine-tuning. Raises: InputError, TaskDataError, NotFoundError."""
    return TaskDraft(choice, layout, roles, table, request, naming).draft()

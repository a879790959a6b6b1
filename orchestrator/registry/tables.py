"""Tables of the registry. A trial is a run with a parent; times are in UTC, by the database's clock; NULL in a metric's
value means NaN.

all_runs >─ parent (a trial's sweep)   all_runs ─┬─< parameters >─ names     all_runs ─┬─< series ─< points
                                                 ├─< own_marks                         │   series >─ names
                                                 ├─< checkpoints                       ├─< own_datasets >─ datasets
                                                 ├─< attempts  (>─ code_diffs)         ├─< all_models ─< model_aliases
                                                 └─< open_runs                         └─< lineage
lineage: edges between data, models and exports, by their digests
ranked_groups: numbers of the leaderboard's groups; they and open_runs follow from the other tables

Views: `runs` and `models`, which everything reads, have the rows of `all_runs` and `all_models` that were not removed;
a removed run can be restored until its files are deleted. Trials inherit from their sweep, and stages from their
pipelines: `marks` and `run_datasets` have what a run has of its own and what it inherits; `stages` and
`archived_stages` are parts of `marks`.

Columns that refer to a run or a name (`run_id`, `parent_id`, `path`, `name` of a series) hold an integer key. Who
writes and reads them gives and gets the run's id and the name itself: their types translate (`dialects`).
"""

from typing import Any

from sqlalchemy import BigInteger, Column, Double, Integer, LargeBinary, MetaData, Table, Text, event, func, select
from sqlalchemy.schema import DDL, CheckConstraint, ForeignKey, ForeignKeyConstraint, Identity, Index, UniqueConstraint
from sqlalchemy.sql import ColumnElement, text

from orchestrator.base.run_states import RunState
from orchestrator.registry.dialects import NAME_KEY, RUN_KEY, FreeText, Json, StateText, UtcTime, utc_now

PIPELINE = "pipeline:"
"""Beginning of the tag of a pipeline's stage; the pipeline's id follows."""
INPUTS = "inputs:"
"""Beginning of the tag of a stage that tells what it works on; a digest follows."""


def is_internal(tag: str) -> bool:
    """Whether a tag says where a run itself belongs: only the laboratory sets it, no trial or stage inherits it."""
    return tag.startswith((PIPELINE, INPUTS))


_BY_TABLE_AND_COLUMNS = "%(table_name)s_%(column_0_N_name)s"
METADATA = MetaData(naming_convention={"ix": f"ix_{_BY_TABLE_AND_COLUMNS}", "uq": f"uq_{_BY_TABLE_AND_COLUMNS}"})
_STORED_STATES = ", ".join(f"'{state}'" for state in RunState if not state.is_derived)


def _column(name: str, kind: Any, *more: Any, **options: Any) -> Column[Any]:
    """A column that has a value in every row."""
    return Column(name, kind, *more, nullable=False, **options)


def _run(**options: Any) -> Column[Any]:
    """The run that a row belongs to, and goes with."""
    return _column("run_id", RUN_KEY, ForeignKey("all_runs.key", ondelete="CASCADE"), **options)


def _now(name: str) -> Column[Any]:
    """The time at which a row was written."""
    return _column(name, UtcTime, default=utc_now())


def _view(name: str, selected: str, /, **columns: Any) -> Table:
    """A view, created after the tables in the order of this file; it is no table of `METADATA`, which would create one.

    A migration that adds a column to a table creates the views of that table again.
    """
    event.listen(METADATA, "after_create", DDL(f"CREATE VIEW {name} AS {selected}"))  # type: ignore[no-untyped-call]
    return Table(name, MetaData(), *(Column(column, kind) for column, kind in columns.items()))


def _not_removed(name: str, table: Table) -> Table:
    columns = {column.name: column.type for column in table.columns}
    return _view(name, f"SELECT * FROM {table.name} WHERE removed_at IS NULL", **columns)


ALL_RUNS = Table(
    "all_runs",
    METADATA,
    Column("key", Integer, Identity(), primary_key=True),
    _column("id", Text),
    Column("parent_id", RUN_KEY, ForeignKey("all_runs.key", ondelete="CASCADE")),
    Column("removed_at", UtcTime),  # when a person removed it; near the front, since all that reads runs looks at it
    Column("trial_key", Text),  # natural key of a trial within its sweep
    Column("number", Integer),  # place of a trial in its sweep
    _column("kind", Text),
    _column("name", FreeText),
    Column("fingerprint", Text),  # digest of the spec; NULL of a trial
    _column("state", StateText, default=RunState.PENDING),
    Column("task", FreeText),
    Column("metric", FreeText),  # score that ranks the runs of the task
    Column("seed", BigInteger),
    _column("group_key", Text),  # digest of the parameters without the seed: runs that have the same are a group
    *(Column(name, FreeText) for name in ("storage_path", "model_folder", "predictions_path")),
    _column("attempt", Integer, default=0),  # number of the newest, which alone may set the state
    Column("host", FreeText),
    Column("pid", BigInteger),
    Column("error", FreeText),
    Column("seconds", Double),
    _now("created_at"),
    *(Column(name, UtcTime) for name in ("started_at", "finished_at", "heartbeat_at")),
    Column("code_version", Text),  # code of the newest attempt in one word (`provenance.capture`), where known
    Column("claimed_at", UtcTime),  # when a garbage collection began to delete its files: it cannot be restored
    Column("num_bytes", BigInteger),  # size of its files when it was removed
    _column("spec", Json),  # last, since SQLite reads past what stands before a column
    UniqueConstraint("id", name="uq_runs_id"),
    CheckConstraint(f"state IN ({_STORED_STATES})", name="ck_runs_state"),
    UniqueConstraint("parent_id", "trial_key", name="uq_runs_parent_id_trial_key"),
    Index("ix_runs_created_at", "created_at", "id"),
    Index("ix_runs_name", "name", "created_at", "id"),
    # No `postgresql_where`: an option loads its dialect, a tenth of a reading command's CPU.
    Index("ix_runs_fingerprint", "fingerprint", sqlite_where=text("fingerprint IS NOT NULL")),
    Index("ix_runs_task", "task", "parent_id"),
    Index("ix_runs_group_key", "group_key"),
    Index("ix_runs_code_version", "code_version"),
    sqlite_autoincrement=True,  # so that a key never means another run
)
"""Executions of specs, removed or not: for who writes."""
RUNS = _not_removed("runs", ALL_RUNS)
"""Runs that were not removed."""

_WHOLE = RUNS.alias("whole_runs")


def of_whole_run(column: str) -> ColumnElement[Any]:
    """Value of a column in a run; in a trial, the value of its sweep."""
    of_sweep = select(_WHOLE.c[column]).where(_WHOLE.c.key == RUNS.c.parent_id).scalar_subquery()
    return func.coalesce(of_sweep, RUNS.c[column])


NAMES = Table(
    "names",
    METADATA,
    Column("key", Integer, Identity(), primary_key=True),
    _column("text", FreeText, unique=True),
)
"""Paths of parameters, and splits and names of measurements: `recipe.size`, `validation.f1`. None is ever removed."""
PARAMETERS = Table(
    "parameters",
    METADATA,
    _column("path", NAME_KEY, ForeignKey("names.key"), primary_key=True),
    _run(primary_key=True, index=True),
    _column("kind", Text),  # text, number, boolean, null or json (a list)
    _column("text", FreeText),  # text itself, or any other value as JSON
    Column("number", Double),  # value of a number, as a double; NULL for NaN; 0 or 1 for a boolean
    sqlite_with_rowid=False,
)
"""Values of runs' specs, by dotted path. All values of a path lie together, as questions read them."""
SERIES = Table(
    "series",
    METADATA,
    Column("key", Integer, Identity(), primary_key=True),
    _run(),
    _column("name", NAME_KEY, ForeignKey("names.key")),  # its split and name: `validation.f1`
    _column("step", BigInteger),
    Column("value", Double),
    _column("final", Integer),  # 1 for a result: the score of the model that was kept
    UniqueConstraint("run_id", "name"),
    Index("ix_series_name_value", "name", "value", "run_id"),
    sqlite_autoincrement=True,  # so that a key never means another series
)
"""Measurements of runs, each with its latest value; an intermediate value never replaces a result."""
POINTS = Table(
    "points",
    METADATA,
    _column("series", Integer, ForeignKey("series.key", ondelete="CASCADE"), primary_key=True),
    _column("step", BigInteger, primary_key=True),
    Column("value", Double),
    Column("epoch", Double),
    sqlite_with_rowid=False,
)
"""Histories of measurements."""
ATTEMPTS = Table(
    "attempts",
    METADATA,
    _run(primary_key=True),
    Column("number", Integer, primary_key=True),
    _column("state", StateText, default=RunState.RUNNING),
    Column("host", FreeText),
    Column("pid", BigInteger),
    Column("error", FreeText),
    _now("started_at"),
    Column("finished_at", UtcTime),
    Column("job_id", FreeText),  # job on a cluster that carries the attempt out
    Column("workers", Json),  # groups of training workers, in order: number of steps before each, its hosts by rank
    Column("code", Json),  # version, commit and changes of the driver's code, without the changes themselves
    Column("diff_digest", Text),  # of `code_diffs`; no foreign key: a diff too long to keep has a digest alone
    Column("command", FreeText),  # command line as it was typed, secrets masked
    Column("overrides", Json),
    Column("environment", Json),  # versions and machine of the driver
    Column("seconds", Double),  # duration so far; NULL before its costs are recorded
    Column("cpu_seconds", Double),
    Column("gpu_seconds", Double),  # GPUs that the attempt held, times the seconds
    Column("gpu_type", FreeText),
)
"""Starts of runs."""
CODE_DIFFS = Table(
    "code_diffs",
    METADATA,
    Column("digest", Text, primary_key=True),  # SHA-256 of the changes before secrets were masked
    _column("diff", FreeText),
    _now("recorded_at"),
)
"""Changes of code that are in no commit, kept once for all attempts that ran it."""
CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    _run(primary_key=True),
    _column("step", BigInteger, primary_key=True),
    _column("path", FreeText),
    _column("digest", Text),  # of its manifest
    _column("num_bytes", BigInteger),
    _now("recorded_at"),
)
"""Training checkpoints that were complete on the storage."""
DATASETS = Table(
    "datasets",
    METADATA,
    Column("fingerprint", Text, primary_key=True),
    _column("kind", Text),
    _column("name", FreeText),
    _column("path", FreeText),
    _column("counts", Json),
    _column("files", Json),
    _now("recorded_at"),
    Column("tokenizer_digest", Text),  # digest of the tokenizer that a token store was made with
)
"""Data that runs made or used: token stores, the splits of tasks, tokenizers."""
OWN_DATASETS = Table(
    "own_datasets",
    METADATA,
    _run(primary_key=True),
    Column("fingerprint", Text, ForeignKey("datasets.fingerprint"), primary_key=True, index=True),
)
"""Data that runs made or used themselves."""
RUN_DATASETS = _view(
    "run_datasets",
    """SELECT run_id, fingerprint FROM own_datasets
UNION ALL SELECT trial.key, own.fingerprint FROM own_datasets AS own
    JOIN all_runs AS trial ON trial.parent_id = own.run_id""",
    run_id=RUN_KEY,
    fingerprint=Text,
)
"""Data that runs, or their sweeps, made or used."""
ALL_MODELS = Table(
    "all_models",
    METADATA,
    Column("name", FreeText, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("run_id", RUN_KEY, ForeignKey("all_runs.key", ondelete="SET NULL")),
    _column("folder", FreeText),
    _column("digest", Text),
    _column("head", Text),  # `classification`, `ner`, `qa`, …: what the model predicts
    _column("num_parameters", BigInteger),
    _now("created_at"),
    Column("removed_at", UtcTime),  # when it was removed; the row stays, so that no other weights get its version
    UniqueConstraint("name", "digest", name="uq_models_name_digest"),
    Index("ix_models_run_id", "run_id"),
    Index("ix_models_folder", "folder"),
)
"""Model folders registered under a name and version, removed or not. A version means the same weights for good."""
MODELS = _not_removed("models", ALL_MODELS)
"""Registered models that were not removed."""
ALIASES = Table(
    "model_aliases",
    METADATA,
    Column("name", FreeText, primary_key=True),
    Column("alias", Text, primary_key=True),
    _column("version", Integer),
    _now("set_at"),
    ForeignKeyConstraint(["name", "version"], ["all_models.name", "all_models.version"], ondelete="CASCADE"),
    Index(None, "name", "version"),
)
"""Names for versions of models, such as `production`; each can be moved to another version."""
LINEAGE = Table(
    "lineage",
    METADATA,
    Column("child", Text, primary_key=True),  # digest of what was made, as below of what it was made of
    Column("parent", Text, primary_key=True, index=True),
    Column("role", Text, primary_key=True),  # what the parent was: `text`, `tokenizer`, `weights`, `teacher`, …
    _column("child_kind", Text),
    _column("child_name", FreeText),
    _column("parent_kind", Text),
    _column("parent_name", FreeText),
    Column("run_id", RUN_KEY, ForeignKey("all_runs.key", ondelete="SET NULL"), index=True),
    _now("recorded_at"),
)
"""Edges from what something was made of to what was made of it, by digests; a row outlives the run that recorded it."""
OWN_MARKS = Table(
    "own_marks",
    METADATA,
    _run(primary_key=True),
    Column("kind", Text, primary_key=True),  # tag, flag, note or place: a tag that says where the run itself belongs
    Column("word", FreeText, primary_key=True),  # the tag or the flag; of a note the digest of its text
    Column("text", FreeText),  # text of a note
    Column("author", FreeText),
    _now("at"),
    Index("ix_own_marks_word", "word", "kind", "run_id"),
    sqlite_with_rowid=False,
)
"""Tags, flags and notes that were added to runs, and the places that runs have (`PIPELINE`, `INPUTS`)."""
STAGES = _view(
    "stages",
    # Written from both sides, so that an index finds the pipeline of a tag as well as the tags of a pipeline.
    f"""SELECT place.run_id AS run_id, pipeline.key AS pipeline FROM own_marks AS place
    JOIN runs AS pipeline ON place.word = '{PIPELINE}' || pipeline.id
        AND pipeline.id = substr(place.word, {len(PIPELINE) + 1})
    WHERE place.kind = 'place'""",
    run_id=RUN_KEY,
    pipeline=RUN_KEY,
)
"""Runs that are stages, each with a pipeline of its that was not removed."""
_view(  # stages all of whose pipelines are archived
    "archived_stages",
    """SELECT stage.run_id AS run_id FROM stages AS stage LEFT JOIN own_marks AS mark
    ON mark.run_id = stage.pipeline AND mark.kind = 'flag' AND mark.word = 'archived'
    GROUP BY stage.run_id HAVING count(*) = count(mark.run_id)""",
)
_JOIN_TRIALS = "JOIN all_runs AS trial ON trial.parent_id ="
_FROM_PIPELINES = "FROM own_marks AS mark JOIN stages AS stage ON stage.pipeline = mark.run_id"
_FROM_ANY = "mark.kind = 'tag' OR (mark.kind = 'flag' AND mark.word <> 'archived')"
_ARCHIVED = "CAST('flag' AS TEXT), CAST('archived' AS TEXT) FROM archived_stages AS stage"
MARKS = _view(
    "marks",
    # SQLite applies a filter within each part (UNION ALL, equal types), so that indexes are used. Rows may repeat: with
    # DISTINCT a server would plan longer than it reads.
    f"""SELECT run_id, kind, word FROM own_marks
UNION ALL SELECT run_id, CAST('tag' AS TEXT), word FROM own_marks WHERE kind = 'place'
UNION ALL SELECT trial.key, mark.kind, mark.word FROM own_marks AS mark
    {_JOIN_TRIALS} mark.run_id WHERE mark.kind IN ('tag', 'flag')
UNION ALL SELECT stage.run_id, mark.kind, mark.word {_FROM_PIPELINES} WHERE {_FROM_ANY}
UNION ALL SELECT trial.key, mark.kind, mark.word {_FROM_PIPELINES} {_JOIN_TRIALS} stage.run_id WHERE {_FROM_ANY}
UNION ALL SELECT stage.run_id, {_ARCHIVED}
UNION ALL SELECT trial.key, {_ARCHIVED} {_JOIN_TRIALS} stage.run_id""",
    run_id=RUN_KEY,
    kind=Text,  # as in `own_marks`; a place stands here a second time, as a tag
    word=FreeText,
)
"""Marks that reach runs: their own, of a trial those of its sweep, of a stage and its trials the pipelines'.

Tags and flags reach others, notes and places do not. A stage of several pipelines has the tags of all; it is pinned
when one of them is, and archived when all are. A mark that reaches a run in several ways has as many rows.
"""


OPEN_RUNS = Table("open_runs", METADATA, _run(primary_key=True), sqlite_with_rowid=False)
"""Runs that `ranked_groups` has not counted: each has not ended, or has changed since, and is read itself.

Without a rowid, for which SQLite would take NULL as a new key.
"""
RANKED_GROUPS = Table(
    "ranked_groups",
    METADATA,
    Column("task", FreeText, primary_key=True),
    Column("metric", FreeText, primary_key=True),
    Column("split", Text, primary_key=True),
    Column("data", Text, primary_key=True),  # digest of the data that were scored; empty where it was not recorded
    Column("beginning", Text, primary_key=True, index=True),  # first digits of the groups' keys
    _column("numbers", LargeBinary),  # a record of `roll_up.NUMBERS` for each group, in the order of their keys
)
"""Numbers of the groups of one ranking whose keys begin alike: a row for each group would take ten times as long."""

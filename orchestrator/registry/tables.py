"""Tables of the registry. A trial is a run with a parent; times are in UTC, by the database's clock; NULL in a metric's
value means NaN.

runs >── parent (a trial's sweep)      runs ─┬─< parameters >─ names      runs ─┬─< series ─< points   series >─ names
                                            ├─< own_marks                      ├─< checkpoints
                                            └─< models ──< model_aliases       └─< own_datasets >─ datasets
lineage: edges between data, models and exports, by digest
The tables of a run's attempts are in `attempt_tables`.

A run that was removed is marked, and can be restored until its files are deleted; so are the models that it registered.
The tables `all_runs` and `all_models` have them, the views `runs` and `models`, which everything reads, have not.

What is written of one run and is true of others as well is found when it is read: in the view `marks` a run has what
people said of it, of its sweep and of its pipelines, in the view `run_datasets` its data and those of its sweep.

Rows refer to a run and to a name by an integer key; who writes and reads them gives and gets the run's id and the name
itself (`column_types`).
"""

from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Text,
    UniqueConstraint,
    event,
    func,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from orchestrator.registry.column_types import FreeText, Json, NameKey, RunKey, StateText, UtcTime, utc_now
from orchestrator.registry.place_tags import PIPELINE
from orchestrator.run_states import RunState

_STORED_STATES = ", ".join(f"'{state}'" for state in RunState if not state.is_derived)

BigInt = Annotated[int, mapped_column(BigInteger)]
RunId = Annotated[str, mapped_column(RunKey, ForeignKey("all_runs.key", ondelete="CASCADE"))]
Name = Annotated[str, mapped_column(NameKey, ForeignKey("names.key"))]
UtcDatetime = Annotated[datetime, mapped_column(UtcTime)]
FreeTextStr = Annotated[str, mapped_column(FreeText)]
_TYPES = {str: Text, float: Double, RunState: StateText, dict[str, Any]: Json, list[Any]: Json}


class BaseRow(DeclarativeBase):
    """Base class of every table's rows; rows stay inside this package."""

    type_annotation_map = _TYPES


class ViewRow(DeclarativeBase):
    """Base class of the rows of views: of tables without what was removed.

    A view keeps the columns that it was made with: a migration that adds one makes the view again.
    """

    type_annotation_map = _TYPES


_BY_ID = {"primary_key": ["id"]}
"""Column by which a session knows a run."""


class _RunColumns:
    """One execution of a spec; with a parent, one trial of a sweep."""

    key: Mapped[int] = mapped_column(Identity(), primary_key=True)
    id: Mapped[str]
    parent_id: Mapped[str | None] = mapped_column(RunKey)
    trial_key: Mapped[str | None]
    """Natural key of a trial within its sweep."""
    number: Mapped[int | None]
    """Place of a trial in its sweep."""
    kind: Mapped[str]
    name: Mapped[FreeTextStr]
    fingerprint: Mapped[str | None]
    """Digest of the spec; None of a trial."""
    state: Mapped[RunState] = mapped_column(default=RunState.PENDING)
    task: Mapped[FreeTextStr | None]
    metric: Mapped[FreeTextStr | None]
    """Score that ranks the runs of the task."""
    seed: Mapped[BigInt | None]
    group_key: Mapped[str]
    """Digest of the parameters without the seed."""
    spec: Mapped[dict[str, Any]]
    storage_path: Mapped[FreeTextStr | None]
    model_folder: Mapped[FreeTextStr | None]
    predictions_path: Mapped[FreeTextStr | None]
    attempt: Mapped[int] = mapped_column(default=0)
    """Number of the newest attempt; an older one no longer decides the state."""
    host: Mapped[FreeTextStr | None]
    pid: Mapped[BigInt | None]
    error: Mapped[FreeTextStr | None]
    seconds: Mapped[float | None]
    created_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())
    started_at: Mapped[UtcDatetime | None]
    finished_at: Mapped[UtcDatetime | None]
    heartbeat_at: Mapped[UtcDatetime | None]
    code_version: Mapped[str | None]
    """Code of the newest attempt in one word (`orchestrator.provenance.source_code`); None where it is not known."""
    removed_at: Mapped[UtcDatetime | None]
    """Time at which a person removed it."""
    claimed_at: Mapped[UtcDatetime | None]
    """Time at which a garbage collection began to delete its files; from then on it cannot be restored."""
    num_bytes: Mapped[BigInt | None]
    """Size of its files when it was removed."""


class RunRow(_RunColumns, ViewRow):
    """A run that was not removed."""

    __tablename__ = "runs"
    __mapper_args__ = _BY_ID


class StoredRun(_RunColumns, BaseRow):
    """A run, removed or not: for who writes."""

    __tablename__ = "all_runs"
    __mapper_args__ = _BY_ID
    __table_args__ = (
        ForeignKeyConstraint(["parent_id"], ["all_runs.key"], ondelete="CASCADE"),
        UniqueConstraint("id", name="uq_runs_id"),
        CheckConstraint(f"state IN ({_STORED_STATES})", name="ck_runs_state"),
        UniqueConstraint("parent_id", "trial_key", name="uq_runs_parent_id_trial_key"),
        Index("ix_runs_created_at", "created_at", "id"),
        Index("ix_runs_name", "name", "created_at", "id"),
        Index("ix_runs_fingerprint", "fingerprint"),
        Index("ix_runs_task", "task"),
        Index("ix_runs_group_key", "group_key"),
        Index("ix_runs_code_version", "code_version"),
        {"sqlite_autoincrement": True},  # so that a key never means another run
    )


_WHOLE = RunRow.__table__.alias("whole_runs")


def of_whole_run(column: str) -> ColumnElement[Any]:
    """Value that a run has in a column, of a trial that of its sweep."""
    of_sweep = select(_WHOLE.c[column]).where(_WHOLE.c.key == RunRow.parent_id).scalar_subquery()
    return func.coalesce(of_sweep, RunRow.__table__.c[column])


class LineageRow(BaseRow):
    """An edge from what something was made of to what was made of it, by the digests of both.

    Its names are those at the time; the row outlives the run that recorded it.
    """

    __tablename__ = "lineage"
    __table_args__ = (Index("ix_lineage_parent", "parent"), Index("ix_lineage_run_id", "run_id"))

    child: Mapped[str] = mapped_column(primary_key=True)
    parent: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    """Part that the parent had in making the child: `text`, `tokenizer`, `weights`, `teacher`, …"""
    child_kind: Mapped[str]
    child_name: Mapped[FreeTextStr]
    parent_kind: Mapped[str]
    parent_name: Mapped[FreeTextStr]
    run_id: Mapped[str | None] = mapped_column(RunKey, ForeignKey("all_runs.key", ondelete="SET NULL"))
    recorded_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


class NameRow(BaseRow):
    """Path of a parameter, or split and name of a measurement: `recipe.size`, `validation.f1`. None is ever removed."""

    __tablename__ = "names"
    __table_args__ = (UniqueConstraint("text", name="uq_names_text"),)

    key: Mapped[int] = mapped_column(Identity(), primary_key=True)
    text: Mapped[FreeTextStr]


class ParameterRow(BaseRow):
    """One value of a run's spec, by its dotted path. All values of a path lie together, as questions read them."""

    __tablename__ = "parameters"
    __table_args__ = (Index("ix_parameters_run_id", "run_id"), {"sqlite_with_rowid": False})

    path: Mapped[Name] = mapped_column(primary_key=True)
    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    kind: Mapped[str]
    """One of text, number, boolean, null and json (a list)."""
    text: Mapped[FreeTextStr]
    """Text itself, or any other value as JSON."""
    number: Mapped[float | None]
    """Value of a number, as a double; NULL for NaN; 0 or 1 for a boolean."""


class SeriesRow(BaseRow):
    """A measurement of a run, and its latest value. That of the run's result is never replaced by one on the way."""

    __tablename__ = "series"
    __table_args__ = (
        UniqueConstraint("run_id", "name", name="uq_series_run_id_name"),
        Index("ix_series_name_value", "name", "value", "run_id"),
        {"sqlite_autoincrement": True},  # so that a key never means another series
    )

    key: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[RunId]
    name: Mapped[Name]
    """Its split and name: `validation.f1`."""
    step: Mapped[BigInt]
    value: Mapped[float | None]
    final: Mapped[int]
    """1 where the value belongs to the run's result, the score of the model that was kept."""


class PointRow(BaseRow):
    """One value in the history of a measurement."""

    __tablename__ = "points"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series: Mapped[int] = mapped_column(ForeignKey("series.key", ondelete="CASCADE"), primary_key=True)
    step: Mapped[BigInt] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    epoch: Mapped[float | None]


class CheckpointRow(BaseRow):
    """A training checkpoint that was complete on the storage."""

    __tablename__ = "checkpoints"

    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    step: Mapped[BigInt] = mapped_column(primary_key=True)
    path: Mapped[FreeTextStr]
    digest: Mapped[str]
    num_bytes: Mapped[BigInt]
    recorded_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


class DatasetRow(BaseRow):
    """Data that runs made or used: a token store, the splits of a task, or a tokenizer."""

    __tablename__ = "datasets"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    name: Mapped[FreeTextStr]
    path: Mapped[FreeTextStr]
    counts: Mapped[dict[str, Any]]
    files: Mapped[list[Any]]
    recorded_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())
    tokenizer_digest: Mapped[str | None]
    """Digest of the tokenizer that a token store was made with; None of other data."""


class OwnDataset(BaseRow):
    """Link between a run and data that it made or used itself."""

    __tablename__ = "own_datasets"
    __table_args__ = (Index("ix_own_datasets_fingerprint", "fingerprint"),)

    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(ForeignKey("datasets.fingerprint"), primary_key=True)


class RunDatasetRow(ViewRow):
    """Link between a run and data that it, or its sweep, made or used."""

    __tablename__ = "run_datasets"

    run_id: Mapped[str] = mapped_column(RunKey, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(primary_key=True)


class _ModelColumns:
    """A model folder registered under a name and version. A version means the same weights for good."""

    name: Mapped[FreeTextStr] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str | None] = mapped_column(RunKey)
    folder: Mapped[FreeTextStr]
    digest: Mapped[str]
    head: Mapped[str]
    num_parameters: Mapped[BigInt]
    created_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())
    removed_at: Mapped[UtcDatetime | None]
    """Time at which it was removed; the row keeps its number from other weights."""


class ModelRow(_ModelColumns, ViewRow):
    """A registered model that was not removed."""

    __tablename__ = "models"


class StoredModel(_ModelColumns, BaseRow):
    """A registered model, removed or not: for who writes."""

    __tablename__ = "all_models"
    __table_args__ = (
        ForeignKeyConstraint(["run_id"], ["all_runs.key"], ondelete="SET NULL"),
        UniqueConstraint("name", "digest", name="uq_models_name_digest"),
        Index("ix_models_run_id", "run_id"),
        Index("ix_models_folder", "folder"),
    )


class AliasRow(BaseRow):
    """A name for one version of a model, such as `production`; it can be moved to another version."""

    __tablename__ = "model_aliases"
    __table_args__ = (
        ForeignKeyConstraint(["name", "version"], ["all_models.name", "all_models.version"], ondelete="CASCADE"),
        Index("ix_model_aliases_name_version", "name", "version"),
    )

    name: Mapped[FreeTextStr] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    set_at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


class OwnMark(BaseRow):
    """Something that was added to a run: a tag, a flag or a note, or the place that it has."""

    __tablename__ = "own_marks"
    __table_args__ = (Index("ix_own_marks_word", "word", "kind", "run_id"), {"sqlite_with_rowid": False})

    run_id: Mapped[RunId] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    """One of tag, flag, note and place: a tag that says where the run itself belongs (`place_tags`)."""
    word: Mapped[FreeTextStr] = mapped_column(primary_key=True)
    """The tag or the flag; of a note the digest of its text."""
    text: Mapped[FreeTextStr | None]
    """Text of a note."""
    author: Mapped[FreeTextStr | None]
    at: Mapped[UtcDatetime] = mapped_column(default=utc_now())


class StageRow(ViewRow):
    """A run that is a stage of a pipeline which was not removed."""

    __tablename__ = "stages"

    run_id: Mapped[str] = mapped_column(RunKey, primary_key=True)
    pipeline: Mapped[str] = mapped_column(RunKey, primary_key=True)


class MarkRow(ViewRow):
    """A mark that reaches a run: its own, of a trial those of its sweep, of a stage and its trials the pipelines'.

    Tags and flags reach others, notes and places do not. A stage of several pipelines has the tags of all; it is pinned
    when one of them is, and archived when all are: it is put away when nothing that is shown uses it any more.
    """

    __tablename__ = "marks"

    run_id: Mapped[str] = mapped_column(RunKey, primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    """Kind as in `OwnMark`; a place is a tag here."""
    word: Mapped[FreeTextStr] = mapped_column(primary_key=True)


_REACHES = "mark.kind IN ('tag', 'flag')"
_NOT_ITS_OWN = """NOT EXISTS (
    SELECT 1 FROM own_marks AS own WHERE own.run_id = {} AND own.kind = mark.kind AND own.word = mark.word)"""
"""Condition for runs that have a mark through others alone: each stands once in the view."""
_OF_PIPELINES = "FROM own_marks AS mark JOIN stages AS stage ON stage.pipeline = mark.run_id"
_OF_THE_FIRST = f"""{_REACHES} AND {_NOT_ITS_OWN.format("stage.run_id")} AND NOT EXISTS (
    SELECT 1 FROM stages AS other LEFT JOIN own_marks AS same
        ON same.run_id = other.pipeline AND same.kind = mark.kind AND same.word = mark.word
    WHERE other.run_id = stage.run_id AND CASE WHEN same.run_id IS NULL
        THEN mark.kind = 'flag' AND mark.word = 'archived' ELSE other.pipeline < stage.pipeline END)"""
"""Condition for a mark that reaches a stage: the first of its pipelines that have it counts."""
_VIEWS = {
    "runs": "SELECT * FROM all_runs WHERE removed_at IS NULL",
    "models": "SELECT * FROM all_models WHERE removed_at IS NULL",
    "run_datasets": """SELECT run_id, fingerprint FROM own_datasets
UNION ALL SELECT trial.key, own.fingerprint FROM own_datasets AS own
    JOIN all_runs AS trial ON trial.parent_id = own.run_id""",
    # The pipeline is found by the tag, and the tag by the pipeline: an index answers either question.
    "stages": f"""SELECT place.run_id AS run_id, pipeline.key AS pipeline FROM own_marks AS place
    JOIN runs AS pipeline ON place.word = '{PIPELINE}' || pipeline.id
        AND pipeline.id = substr(place.word, {len(PIPELINE) + 1})
    WHERE place.kind = 'place'""",
    # SQLite asks each part for the runs or the words alone that are wanted, since their union leaves nothing out and
    # their columns have the same types.
    "marks": f"""SELECT run_id, kind, word FROM own_marks
UNION ALL SELECT run_id, CAST('tag' AS TEXT), word FROM own_marks WHERE kind = 'place'
UNION ALL SELECT trial.key, mark.kind, mark.word FROM own_marks AS mark
    JOIN all_runs AS trial ON trial.parent_id = mark.run_id
    WHERE {_REACHES} AND {_NOT_ITS_OWN.format("trial.key")}
UNION ALL SELECT stage.run_id, mark.kind, mark.word {_OF_PIPELINES} WHERE {_OF_THE_FIRST}
UNION ALL SELECT trial.key, mark.kind, mark.word {_OF_PIPELINES}
    JOIN all_runs AS trial ON trial.parent_id = stage.run_id
    WHERE {_OF_THE_FIRST} AND {_NOT_ITS_OWN.format("trial.key")}""",
}
for view, selected in _VIEWS.items():
    event.listen(BaseRow.metadata, "after_create", DDL(f"CREATE VIEW {view} AS {selected}"))  # type: ignore[no-untyped-call]

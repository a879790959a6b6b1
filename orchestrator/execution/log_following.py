"""Following the log of a run that another process carries out: what is added is passed on until the run has ended."""

from collections.abc import Callable, Sequence

from orchestrator.execution.run_log import LOG_FILE
from orchestrator.execution.starting import is_over
from orchestrator.execution.waiting import looks, recorded_id
from orchestrator.registry.patience import retry_while_unavailable
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.settings import Settings
from orchestrator.storage import join, open_read

_PAUSE_S = 1.0


def follow_log(
    run_id: str,
    *,
    settings: Settings,
    write: Callable[[bytes], object],
    pause_s: float = _PAUSE_S,
) -> RunRecord:
    """Pass on the log of a run from its beginning, and what is added, until the run has ended or its driver is lost.

    A run that is about to go on has not ended.

    The lines of a pipeline's work are in the logs of its stages: that of the stage at work is passed on too, and those
    of the stages after it. A log that is not there yet is waited for.

    Args:
        write: takes each piece as soon as it is there.
        pause_s: seconds between two looks.

    Raises: NotFoundError.
    """
    with Registry(settings.registry, read_only=True) as registry:
        whole_id = recorded_id(registry, run_id, pause_s=pause_s)
        logs = _GrowingLogs(settings.storage, write)
        for _ in looks(None, pause_s):
            # The state before the log, so that the last lines are there when the run has ended.
            record = retry_while_unavailable(lambda: registry.run(whole_id))
            stages = retry_while_unavailable(lambda: registry.stages(whole_id)) if record.kind == "pipeline" else []
            logs.pass_on(record, stages)
            if is_over(record, settings):
                break
    return record


class _GrowingLogs:
    """Logs of a run and of a pipeline's stages, each passed on from where it was last read."""

    def __init__(self, storage: str, write: Callable[[bytes], object]) -> None:
        self._storage, self._write = storage, write
        self._paths: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        self._done: set[tuple[str, int]] | None = None
        """Stages, by id and attempt, whose logs need not be read any more; None before the first look."""

    def pass_on(self, record: RunRecord, stages: Sequence[RunRecord]) -> None:
        """Pass on what was added: of stages that have ended, then of the pipeline, then of the stage at work."""
        if self._done is None:
            self._done = {(stage.id, stage.attempt) for stage in stages if stage.state.is_final}
        new = [stage for stage in reversed(stages) if (stage.id, stage.attempt) not in self._done]
        ended = [stage for stage in new if stage.state.is_final]
        for run in (*ended, record, *(stage for stage in new if not stage.state.is_final)):
            if run is record or run.created_at >= record.created_at:  # other stages are used again, and say nothing
                self._pass_on(run)
        self._done |= {(stage.id, stage.attempt) for stage in ended}

    def _pass_on(self, run: RunRecord) -> None:
        if run.id not in self._paths:
            self._paths[run.id] = join(run.folder(self._storage), LOG_FILE)
        position = self._positions.get(run.id, 0)
        added = _read_from(self._paths[run.id], position)
        if not run.state.is_final:  # its last line may be half written
            added = added[: added.rfind(b"\n") + 1]
        if added:
            self._write(added)
            self._positions[run.id] = position + len(added)


def _read_from(path: str, position: int) -> bytes:
    """The bytes of a file from a position on; none where it is not there."""
    try:
        with open_read(path) as file:  # of an object on S3 only what comes after the position is fetched
            file.seek(position)
            return file.read()
    except FileNotFoundError:
        return b""

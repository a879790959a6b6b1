"""Pulling runs: what another registry has of them, and their logs, brought into this machine's registry and home.

    there: bundle ─► here: each run in one transaction ─► its logs in HOME/pulled/RUN

The digest of a run lies beside its logs, so that the next pull leaves out what has not changed since.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.execution.head_commands import HeadCommand
from orchestrator.execution.run_bundle import Bundle, BundledRun, Wanted
from orchestrator.registry.keeping.run_transfers import is_same_record, pulled_from
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.run_ids import is_run_id
from orchestrator.settings import Settings
from orchestrator.storage import join, read_json, write_bytes, write_json
from orchestrator.training.worker_log import FOLDER

_BUNDLE_FILE, _CONTENTS_FILE, _WANTED_FILE, _MARK = "bundle.gz", "contents.json", "wanted.json", "pulled.json"
_LOG_NAME = re.compile(rf"(?:{FOLDER}/)?[\w-]+\.txt")
_MOST_KNOWN = 20_000
"""Runs of which the other side is told that they are here: what is uploaded has a limit."""


@dataclass(frozen=True)
class PulledRun:
    """A run of a bundle, and what became of it here."""

    run: BundledRun
    change: str
    """One of new, updated, unchanged and refused."""
    remark: str = ""
    """Text for a person: why it was refused, or which models have another version here."""


def pulled_folder(home: Path, run_id: str) -> str:
    """Folder of the logs of a run that came from elsewhere."""
    return str(home / "pulled" / run_id)


def log_folder(record: RunRecord, registry: Registry, settings: Settings) -> str:
    """Folder in which a run's logs are read: that of the run, or of what was pulled of it."""
    if pulled_from(registry.tags(record.id)) is not None:
        return pulled_folder(settings.home, record.id)
    return record.folder(settings.storage)


def known_digests(registry: Registry, home: Path) -> dict[str, str]:
    """Digests of the runs that came here before, as they were then."""
    known: dict[str, str] = {}
    for run_id in list(registry.transfers.pulled())[:_MOST_KNOWN]:
        try:
            digest = read_json(join(pulled_folder(home, run_id), _MARK))["digest"]
        except (OSError, ValueError, KeyError):
            continue  # it comes again
        if digest:
            known[run_id] = digest
    return known


def bundle_command(wanted: Wanted, *, contents_only: bool) -> HeadCommand:
    """The command that has the head make a bundle, or only tell what would be in it."""
    values = asdict(wanted) | {"since": wanted.since.isoformat() if wanted.since else None}
    returned = _CONTENTS_FILE if contents_only else _BUNDLE_FILE
    command = ["cluster", "bundle", _WANTED_FILE, returned, *(["--contents-only"] if contents_only else [])]
    return HeadCommand(command, {_WANTED_FILE: json.dumps(values).encode()}, returned)


def read_wanted(path: Path) -> Wanted:
    """Read what `bundle_command` has sent along."""
    values = json.loads(path.read_bytes())
    return Wanted(**values | {"since": datetime.fromisoformat(values["since"]) if values["since"] else None})


def foretell(run: BundledRun, registry: Registry) -> str:
    """Tell what would become of a run here: one of new, updated, unchanged and refused."""
    if run.id in registry.transfers.pulled():
        return "updated"
    if run.id not in registry.transfers.begun_since(None):
        return "new"
    is_same = run.digest is not None and is_same_record(run.digest, registry.transfers.digest(run.id))
    return "unchanged" if is_same else "refused"


def bring_runs(bundle: Bundle, registry: Registry, home: Path) -> Iterator[PulledRun]:
    """Bring the runs of a bundle here, one after the other; yields what became of each as soon as it is here."""
    for run in bundle.contents.runs:
        yield _bring(bundle, run, registry, home)


def _bring(bundle: Bundle, run: BundledRun, registry: Registry, home: Path) -> PulledRun:
    if not is_run_id(run.id):
        return PulledRun(run, "refused", f"{run.id!r} is no id of a run: 12 digits of 0-9 and a-f")
    try:
        transfer = registry.transfers.bring(run.id, bundle.registry.transfers, bundle.contents.place)
    except InputError as error:
        return PulledRun(run, "refused", str(error))
    folder = pulled_folder(home, run.id)
    for name, data in bundle.logs(run.id).items():
        if _LOG_NAME.fullmatch(name):  # a file of another name would lie where its sender wants it
            write_bytes(join(folder, name), data)
    write_json(join(folder, _MARK), {"place": bundle.contents.place, "digest": run.digest})  # last: all is here
    renamed = "; ".join(f"model {there} is {here} here" for there, here in transfer.renamed.items())
    return PulledRun(run, transfer.change, renamed)

"""Commands that run on a cluster's head as Ray jobs, and what they print there.

Ray merges a job's stdout and stderr into one log, and adds lines of its own. So the job writes exit status, stdout and
stderr into files, and prints each of them, and the file that the command wrote, as a marked line in base64.
"""

import re
import secrets
import shlex
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.base.errors import ClusterError
from orchestrator.base.settings import API_ADDRESS_VARIABLE, Settings
from orchestrator.execution.jobs import Jobs, given_words, job_command, open_jobs, refuse_password, uploaded

ROLE_OF_COMMANDS = "command"
"""Value of the metadata `role` of a command's job."""
_MARK = "orchestrator-answer"
_KEPT_MS = 10_000
"""Time after its end for which a job is kept. Ray's monitor looks once a second, and records a job that was deleted
before it had seen the end once more, as failed and without metadata."""


@dataclass(frozen=True)
class HeadAnswer:
    """Output of a command on the head."""

    status: int
    out: bytes
    err: bytes
    file: bytes | None = None
    """The file that the command wrote; None where it wrote none."""


def ask_head(
    words: Sequence[str],
    settings: Settings,
    address: str,
    *,
    files: Mapping[str, bytes] | None = None,
    returned: str | None = None,
) -> HeadAnswer:
    """Run a command on the head of the cluster whose dashboard is at an address. An interruption stops its job.

    Args:
        words: of the command line, after `orchestrator` and without settings.
        files: small files by name, which the command reads in its current folder.
        returned: name of a file that the command writes there.

    Raises: ClusterError; InputError for a registry's URL with a password.
    """
    refuse_password(settings)
    jobs, job_id, files = open_jobs(address), f"command-{secrets.token_hex(6)}", files or {}
    metadata = {"job_name": shlex.join(["orchestrator", *words]), "role": ROLE_OF_COMMANDS}
    command = job_command([*given_words(settings), *words], settings, address)
    try:
        with uploaded(files) as environment:
            jobs.submit(job_id, _script(command, files, returned), environment, metadata)
        details = jobs.wait(job_id)
        log = str(jobs.ask("get_job_logs", job_id))
    except BaseException:
        with suppress(ClusterError):
            jobs.ask("stop_job", job_id)
        raise
    _forget_earlier(jobs, job_id)
    found = re.findall(rf"^{_MARK} (\d) ([A-Za-z0-9+/=]*)$", log, re.MULTILINE)
    parts = {int(number): b64decode(text) for number, text in found}
    if not {0, 1, 2} <= parts.keys():
        said = " ".join((log[-600:] or details.message or "nothing").split())
        raise ClusterError(f"the command on the cluster's head was cut off ({details.status.value}). It said: {said}")
    answer = HeadAnswer(int(parts[0]), parts[1], parts[2], parts.get(3))
    if answer.status == 127:
        raise ClusterError("the cluster's head has no `orchestrator` command; install the package there")
    return answer


def _script(command: str, files: Mapping[str, bytes], returned: str | None) -> str:
    """The job's commands for the shell."""
    copied = f'cp {shlex.join(files)} "$folder" && ' if files else ""
    return (
        f'unset {API_ADDRESS_VARIABLE}; folder=$(mktemp -d) && {copied}cd "$folder" || exit; '
        f"{command} >.out 2>.err </dev/null; echo $? >.status; "
        f"number=0; for part in .status .out .err {shlex.quote(returned or '.no-file')}; do "
        f'if [ -f "$part" ]; then echo "{_MARK} $number $(base64 <"$part" | tr -d "\\n")"; fi; '
        'number=$((number + 1)); done; rm -r "$folder"'
    )


def _forget_earlier(jobs: Jobs, job_id: str) -> None:
    """Delete the jobs of commands that had ended some time before this one began: they are nobody's runs."""
    with suppress(ClusterError):  # the answer stands, whatever becomes of the jobs
        known = jobs.submitted()
        began = known[job_id].start_time if job_id in known else None
        for other_id, job in known.items():
            is_command = (job.metadata or {}).get("role") == ROLE_OF_COMMANDS
            if is_command and began and job.end_time and job.end_time < began - _KEPT_MS:
                jobs.ask("delete_job", other_id)

"""Ids of runs: drawn once, where a run is asked for; the job that carries it out on a cluster is called the same.

And their names, which people give them.
"""

import re
from uuid import uuid4

_RUN_ID = re.compile("[0-9a-f]{12}")


def new_run_id() -> str:
    """Draw the id of a new run."""
    return uuid4().hex[:12]


def is_run_id(text: str) -> bool:
    """Whether a text is the whole id of a run; the beginning of one is not.

    >>> is_run_id("7f3a90b1c2d4"), is_run_id("7f3a"), is_run_id("7F3A90B1C2D4")
    (True, False, False)
    """
    return _RUN_ID.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return the name of a run. Raises: ValueError for one that commands would take for a path or an option."""
    if name[:1] in ("", ".", "/", "~", "-") or name != name.strip():
        raise ValueError(
            f"{name!r} cannot be a run's name, by which commands find it: it has no blanks at its ends, and does not "
            "begin with . / ~ or -"
        )
    return name

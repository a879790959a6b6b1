"""Ages and times as a person types them: `30d`, `12h` and `2w`, or a day such as `2026-11-22`."""

import re
from datetime import UTC, datetime, timedelta

from orchestrator.errors import InputError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_DATE_SHAPED = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_LONGEST_S = 36_500 * _UNITS_S["d"]
"""Age that a calendar still has; a day much further back is none."""


def age_s(age: str, option: str, *, or_else: str = "") -> float:
    """Seconds of an age such as `30d` or `12h`, the value of an option. Raises: InputError.

    Args:
        or_else: what the option takes beside an age, for the message.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age)
    if found is None:
        raise InputError(f"{option} is {age}; give an age such as 30d, 12h, 90m, 45s or 2w{or_else}")
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if seconds > _LONGEST_S:
        raise InputError(f"{option} is {age}; give 36500d at most")
    return seconds


def time_of(since: str | None, option: str) -> datetime | None:
    """Time that a day or an age means, the value of an option; without a zone it is in UTC, as in queries and tables.

    Raises: InputError.
    """
    if since is None:
        return None
    try:
        day = datetime.fromisoformat(since)
    except ValueError:
        if _DATE_SHAPED.match(since):
            raise InputError(
                f"{option} is {since}, which the calendar has not; give a day such as 2026-11-22"
            ) from None
        seconds = age_s(since, option, or_else=", or a day such as 2026-11-22")
        return datetime.now(UTC) - timedelta(seconds=seconds)
    return day if day.tzinfo else day.replace(tzinfo=UTC)

"""Times, counts and sizes for people, as text, and the pace of lines that come again and again."""

import time


def duration(seconds: float) -> str:
    """Text of a length of time, short for people.

    >>> duration(59.4), duration(61), duration(3 * 3600 + 60)
    ('59 s', '1:01 min', '3:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def counted(number: float, noun: str) -> str:
    """Number and noun, in the plural unless it is one.

    >>> counted(1, "text"), counted(1200, "text"), counted(0.5, "GPU")
    ('1 text', '1,200 texts', '0.5 GPUs')
    """
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun}{'' if number == 1 else 's'}"


def size_text(num_bytes: int) -> str:
    """Text of a number of bytes, in kB, MB or GB where it is large enough.

    >>> size_text(123), size_text(1234), size_text(1_500_000), size_text(2_500_000_000)
    ('123 bytes', '1.2 kB', '1.5 MB', '2.50 GB')
    """
    if num_bytes < 1e3:
        return counted(num_bytes, "byte")
    if num_bytes < 1e5:
        return f"{num_bytes / 1e3:,.1f} kB"
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"


class Pace:
    """Tells when the next line of a kind may be said: the first one at once, later ones after an interval."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last_at: float | None = None

    def is_due(self) -> bool:
        """Whether a line may be said now; the interval begins anew if so."""
        now = time.monotonic()
        if self._last_at is not None and now - self._last_at <= self._interval_s:
            return False
        self._last_at = now
        return True

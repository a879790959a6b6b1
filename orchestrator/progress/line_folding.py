"""Lines for a person folded between words, where a terminal would cut them in the middle of one."""

import re
import textwrap

_WHOLE = re.compile(r"(?<=: )orchestrator .*|`[^`]*`")
"""Commands within a line, which are to be copied as they stand."""
_GLUE = "\u00a0"
"""A space at which nothing is folded."""


def folded(text: str, width: int | None) -> str:
    """The text with its lines folded between words; those that are indented, as commands and tables are, stay whole.

    Args:
        width: columns of the terminal; None leaves the text as it is.

    >>> print(folded("a rather long line with a remedy: orchestrator resume 7f3a", 26))
    a rather long line with a
      remedy:
      orchestrator resume 7f3a
    """
    return text if width is None else "\n".join(_folded_line(line, width) for line in text.split("\n"))


def _folded_line(line: str, width: int) -> str:
    if len(line) <= width or line[:1].isspace():
        return line
    glued = _WHOLE.sub(lambda command: command.group().replace(" ", _GLUE), line)
    rows = textwrap.wrap(glued, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(rows).replace(_GLUE, " ")

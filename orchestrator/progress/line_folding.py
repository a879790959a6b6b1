"""Lines for a person folded between words, where a terminal would cut them in the middle of one."""

import re

_WHOLE = re.compile(r"(?<=: )orchestrator .*|`[^`]*`")
"""Commands within a line, which are to be copied as they stand."""
_GLUE = "\u00a0"
"""A space at which nothing is folded."""
_INDENT = "  "


def folded(text: str, width: int | None) -> str:
    """The text with its lines folded between words; those that are indented, as commands and tables are, stay whole.

    Args:
        width: columns of the terminal; None leaves the text as it is.

    >>> print(folded("a rather long line with a remedy: orchestrator resume 7f3a", 28))
    a rather long line with a
      remedy:
      orchestrator resume 7f3a
    """
    return text if width is None else "\n".join(_folded_line(line, width) for line in text.split("\n"))


def _folded_line(line: str, width: int) -> str:
    if line[:1].isspace() or (len(line) <= width and line.isascii()):
        return line
    from orchestrator.progress.table_layout import wrapped

    glued = _WHOLE.sub(lambda command: command.group().replace(" ", _GLUE), line)
    whole = wrapped(glued, width)
    rows = whole if len(whole) == 1 else wrapped(glued, width - len(_INDENT))
    return f"\n{_INDENT}".join(rows).replace(_GLUE, " ")

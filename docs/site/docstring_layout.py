"""Griffe extension: the parts of a docstring that Markdown would run together are set apart before it is parsed.

Two habits of this project are not Google's style to the letter. Doctests stand without an `Examples:` heading, and
`Raises:` is a sentence, whose further lines are indented.
"""

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
"""Pattern of a doctest: from a prompt to the next empty line."""

_RAISES = re.compile(r"^Raises: .+(?:\n[ \t]+\S.*)+", re.MULTILINE)
"""A sentence and its indented lines."""


def lay_out(docstring: str) -> str:
    """The same docstring with doctests as blocks of code, and sentences of `Raises:` without indentation."""
    flowing = _RAISES.sub(lambda match: re.sub(r"\n[ \t]+", "\n", match[0]), docstring)
    return _DOCTEST.sub(lambda match: f"```pycon\n{match[0]}\n```", flowing)


class DocstringLayout(Extension):
    """Lays out each docstring of the packages when Griffe has found it."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by Griffe for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = lay_out(obj.docstring.value)

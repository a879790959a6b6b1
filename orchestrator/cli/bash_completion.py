"""Completion in bash, where a word may hold `=`, `@` and `:`.

bash takes these for ends of words: of `recipe.epochs=1` it hands over three words, and replaces only the last one. So
the command line is read whole, as the shell will read it, and the part of a word that stays is left out of the answer.
"""

import os
import re

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE = 'COMP_LINE="${COMP_LINE:0:$COMP_POINT}"'
_ADDED = "            COMPREPLY+=($value)\n"
_NO_SPACE = "            [[ $value == *= ]] && compopt -o nospace\n"
_STAYS = re.compile(r"\S*(?:[=:]|(?=@))")
"""Beginning of a word that bash keeps: up to and with the last `=` or `:`, or up to the last `@`."""


class BashWords(BashComplete):
    """bash's completion by words as the shell will split them."""

    source_template = BashComplete.source_template.replace(_WORDS, _LINE).replace(_ADDED, _ADDED + _NO_SPACE)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Read the words before the cursor, without the command's own name, and the word at it."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() and not _is_quoted(line) else words.pop()
        found = _STAYS.match(incomplete) if not _is_quoted(line) else None
        self._stays = len(found.group()) if found else 0
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Write one word as the script reads it, without the part that bash keeps."""
        return f"{item.type},{item.value[self._stays :] if item.type == 'plain' else item.value}"


def _is_quoted(line: str) -> bool:
    """Whether the line ends inside quotation marks."""
    return line.count('"') % 2 == 1 or line.count("'") % 2 == 1


def add_bash() -> None:
    """Have click answer bash in this way."""
    assert _WORDS in BashComplete.source_template, "click's script has changed"
    assert _ADDED in BashComplete.source_template, "click's script has changed"
    add_completion_class(BashWords)

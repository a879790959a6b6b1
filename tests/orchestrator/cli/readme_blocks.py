"""The README's blocks, as they stand: what is indented by four, and what is fenced with the name of a language."""

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"
_FENCED = re.compile(r"```(\w+)\n(.*?)```\n", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block and where it begins."""

    line: int
    language: str
    """`console` for an indented one, else what stands behind the fence."""
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The lines that are typed, letter by letter; one that ends in a backslash goes on."""
        return tuple(line for line in re.split(r"(?<!\\)\n", self.text) if line.strip())


def read_blocks(text: str) -> list[Block]:
    """All blocks of a page in order."""
    found = [
        Block(text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2))
        for match in _FENCED.finditer(text)
    ]
    rest = _FENCED.sub(lambda match: "\n" * match.group().count("\n"), text)
    for match in re.finditer(r"(?:(?<=\n\n)|\A)(?: {4}.*\n(?:\n(?= {4}))*)+", rest):
        lines = re.sub(r"^ {4}", "", match.group(), flags=re.MULTILINE)
        found.append(Block(rest.count("\n", 0, match.start()) + 1, "console", lines))
    return sorted(found, key=lambda block: block.line)

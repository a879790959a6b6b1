"""Cases of the step time: sizes, widths and the sides that are compared, in their order."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.gpu.results import Value
from benchmarks.gpu.setting import SMALL_SIZE, Setting
from benchmarks.gpu.sides import (
    COMPILED_HERE,
    HERE,
    HERE_COMPILED,
    HERE_COMPILED_GRAPHS,
    HERE_DROPOUT,
    HERE_GRAPHS,
    PEER,
    PEER_COMPILED,
)

EAGER, COMPILED = "eager", "compiled"
_SIDES = {
    EAGER: (HERE, HERE_GRAPHS, HERE_DROPOUT, PEER),
    COMPILED: (HERE_GRAPHS, HERE_COMPILED, HERE_COMPILED_GRAPHS, PEER_COMPILED),
}
_COMPILE_S = {"base": 60, "large": 120}
"""Seconds that compiling transformers' model may take, which must be left in the budget; 40 for smaller models."""
COMPILE_LAYERS_S = 20
"""Seconds that compiling the layers here may take."""


@dataclass(frozen=True)
class Case:
    """A model and a width of rows, with the sides that are compared."""

    size: str
    width: int
    batch_size: int
    sides: tuple[str, ...]
    kind: str
    """EAGER or COMPILED: what stands beside the step here. A size and width has a case of each kind."""

    def named(self, fill: float) -> dict[str, Value]:
        """Begin the rows of the case on rows that are so full."""
        return {"size": self.size, "S": self.width, "fill": fill, "case": self.kind}


def cases(setting: Setting) -> Iterator[Case]:
    """Yield the cases, those of the goals first; what is long to compile comes last, and never before an eager side."""
    slots, widths = setting.choose((32_768, (128, 512)), (64, (16,)))

    def case(size: str, width: int, kind: str) -> Case:
        return Case(size, width, slots // width, _SIDES[kind], kind)

    first, *others = setting.choose(("base", "large", "small", "mini", "tiny"), (SMALL_SIZE,))
    yield from (case(first, widths[0], kind) for kind in (EAGER, COMPILED))
    rest = [(size, width) for size in (first, *others) for width in widths][1:]
    yield from (case(size, width, EAGER) for size, width in rest)
    yield from (case(size, width, COMPILED) for size, width in rest)


def compile_s(size: str, name: str) -> int:
    """Seconds that compiling a side may take, which must be left in the budget."""
    if name in COMPILED_HERE:
        return COMPILE_LAYERS_S
    return _COMPILE_S.get(size, 40) if name == PEER_COMPILED else 0

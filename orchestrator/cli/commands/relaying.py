"""Command `relay`, which jobs on a cluster's head begin with: it carries out a command that came from elsewhere."""

import math
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsCommand

if TYPE_CHECKING:
    from orchestrator.execution.relay import Size


class _SizeType(click.ParamType["Size"]):
    """Size of a terminal, as COLUMNSxLINES."""

    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> "Size":
        columns, _, lines = value.partition("x")
        if not (columns.isdecimal() and lines.isdecimal()):
            self.fail(f"{value!r} is no COLUMNSxLINES", param, ctx)
        return int(columns), int(lines)


@click.command(
    cls=GlobalOptionsCommand,
    hidden=True,
    example="orchestrator relay 5ca1ab1e --out 120x40 -- runs list --limit 5",
)
@click.argument("mark")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("--out", type=_SizeType(), help="stdout is to be a terminal of this size.")
@click.option("--err", type=_SizeType(), help="stderr is to be a terminal of this size.")
@click.option("--file", "files", multiple=True, metavar="NAME", help="A file of the current folder that it reads.")
@click.option("--lease", "lease_s", type=float, default=math.inf, help="Seconds to its end, unless they are renewed.")
@click.option("--returned", metavar="NAME", help="A file that it writes, which goes back.")
def relay(
    mark: str,
    words: tuple[str, ...],
    out: "Size | None",
    err: "Size | None",
    files: tuple[str, ...],
    lease_s: float,
    returned: str | None,
) -> int:
    """Carry out a command that came from elsewhere; what it prints goes to stdout as marked lines."""
    from orchestrator.execution.relay import relay_command

    terminals = {name: size for name, size in (("out", out), ("err", err)) if size is not None}
    return relay_command(mark, words, terminals=terminals, files=files, returned=returned, lease_s=lease_s)

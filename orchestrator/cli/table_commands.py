"""Commands that read the registry and show rows: with its options, its registry, and the place where rows go."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.output import Row, page_size, show_rows, shows_briefly
from orchestrator.cli.reading import list_options
from orchestrator.cli.registry_reading import open_registry

PAGE = 30
"""Rows on a terminal; `--limit` gives more of them."""


@dataclass(frozen=True)
class TableView:
    """Form and file that a person asked rows to be shown in."""

    form: str | None
    output: str | None

    @property
    def is_brief(self) -> bool:
        """Whether rows become a table for a person, with the columns that matter most."""
        return shows_briefly(self.form, self.output)

    @property
    def limit(self) -> int | None:
        """Number of rows to read; None for all."""
        return page_size(PAGE, self.form, self.output)

    def show(self, rows: Iterable[Row], columns: Sequence[str], **layout: Any) -> None:
        """Show rows, with the layout that `show_rows` takes."""
        show_rows(rows, columns, self.form, self.output, **layout)


def table_command(name: str | None = None, *, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that gets an open registry, a `TableView`, and the command's own parameters."""

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def show(form: str | None, output: str | None, **given: Any) -> None:
            with open_registry() as registry:
                function(registry, TableView(form, output), **given)

        attributes = vars(show)
        own = attributes.pop("__click_params__", [])  # in the help they stand before those of every list
        list_options(show)
        attributes["__click_params__"] += own
        return click.command(name, cls=GlobalOptionsCommand, example=example)(show)

    return make

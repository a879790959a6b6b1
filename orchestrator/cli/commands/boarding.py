"""Command `board`: the registry as pages in a browser."""

import webbrowser

import click

from orchestrator.cli.commands.costing import recorded_cost
from orchestrator.cli.commands.registry_reading import open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_text
from orchestrator.progress import clear_screen


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator board\norchestrator board --port 0 --open",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8100, show_default=True, help="0 for any free one.")
@click.option("--open", "is_opened", is_flag=True, help="Open it in this machine's browser.")
def board(port: int, is_opened: bool) -> None:
    """Show the registry in a browser, until Ctrl-C.

    The newest runs, live, with a query for the rest; the page of each run and task as `report` writes it; and runs
    side by side. Nothing can be changed there, and only this machine reaches it: from elsewhere, forward its port by
    ssh.
    """
    say_now("opening the registry")
    from orchestrator.reports.board import build_app
    from orchestrator.web.server import listening, serve_app, url_of

    home = current_settings().home  # what answers works in threads, which know nothing of the command
    with open_registry() as registry, listening("127.0.0.1", port, has_host_option=False) as listener:
        registry.open()  # one of another revision is refused now, not on every page
        url = url_of("127.0.0.1", listener.getsockname()[1])

        def on_ready() -> None:
            clear_screen()
            show_text(url)
            notify(f"the board of {registry.place} is there; Ctrl-C ends it")
            if is_opened:
                webbrowser.open(url)

        try:
            serve_app(build_app(registry, lambda run: recorded_cost(registry, run, home)), listener, on_ready)
        except KeyboardInterrupt:
            notify("the board is closed")

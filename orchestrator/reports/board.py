"""The board: pages as `orchestrator report` writes them, served, and a live list of the newest runs.

/                        the newest runs; with ?query=… those that match
/runs/RUN, /tasks/TASK   a run, a trial, a sweep or a pipeline; a task
/compare?run=A&run=B     runs side by side
/plotly.js               the library that draws charts, kept by the browser

Everything is read; nothing can be changed from a browser.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from orchestrator.base.console import counted, duration
from orchestrator.base.errors import InputError, NotFoundError, OrchestratorError
from orchestrator.base.run_states import RunState
from orchestrator.base.web import LOOPBACK_NAMES, App, Guard
from orchestrator.registry.registry import Registry
from orchestrator.reports.page_blocks import Cell, Code, Page, Section, Table, run_cell
from orchestrator.reports.pages import MAX_RUNS, comparison_page, run_page, task_page
from orchestrator.reports.rendering import BoardOptions, plotly_source, render

MAX_ROWS = 1_000
"""Runs of the list at most: the newest; a query finds the rest."""
_COLUMNS = ("name", "state", "score", "metric", "task", "kind", "seed", "took", "created")
_AT_WORK = (RunState.PENDING, RunState.RUNNING)


def build_app(registry: Registry, home: Path | None = None) -> App:
    """Build the application that shows a registry to the browsers of this machine, by its own names alone.

    Args:
        home: folder with the table of prices.
    """

    def run(request: Request) -> tuple[Page, BoardOptions]:
        found = registry.run(request.path_params["run"])
        return run_page(registry, found, home), BoardOptions(is_live=found.state in _AT_WORK)

    def task(request: Request) -> tuple[Page, BoardOptions]:
        name = request.path_params["task"]
        if name not in registry.ranked_tasks():
            raise NotFoundError(f"No run of task {name} has ended with a score.")
        return task_page(registry, name), BoardOptions()

    def comparison(request: Request) -> tuple[Page, BoardOptions]:
        names = request.query_params.getlist("run")
        if not 2 <= len(names) <= MAX_RUNS:
            raise InputError(f"choose 2 to {MAX_RUNS} runs; these are {len(names)}")
        return comparison_page(registry, [registry.run(name) for name in names]), BoardOptions()

    routes = [
        Route("/", _answer(lambda request: (list_page(registry, asked := _asked(request)), asked))),
        Route("/runs/{run:path}", _answer(run)),
        Route("/tasks/{task:path}", _answer(task)),
        Route("/compare", _answer(comparison)),
        Route("/plotly.js", _library),
    ]
    return Guard(Starlette(routes=routes), token=None, hosts=LOOPBACK_NAMES)


def list_page(registry: Registry, asked: BoardOptions) -> Page:
    """Make the page of the newest matching runs. Raises: InputError for an invalid query."""
    query, trials, archived = asked.query or "", asked.trials, asked.archived
    records = registry.run_table(query, limit=MAX_ROWS, trials=trials, archived=archived).records
    num_runs = len(records)
    if num_runs == MAX_ROWS:
        num_runs = registry.num_runs(query, trials=trials, archived=archived)
    newest = f"the newest {MAX_ROWS:,} of " if num_runs > MAX_ROWS else ""
    table = Table(_COLUMNS, list(map(_row, records)), choices=[record["id"] for record in records])
    return Page("Runs", newest + counted(num_runs, "run"), [Section("Newest first", [table])])


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """Cells of a run; the score is its task's ranking metric."""
    name, task, seconds = record["name"], record["task"], record["seconds"]
    name = f"#{record['number']} of {name.rpartition(' #')[0]}" if record["parent"] else name
    return {
        **{key: record[key] for key in ("kind", "metric", "seed")},
        "name": run_cell(record["id"], name),
        "state": str(record["state"]),
        "score": record.get(f"metrics.{record['metric']}"),
        "task": Cell(task, f"tasks/{quote(task)}") if task else None,
        "took": None if seconds is None else Cell(duration(seconds), sorts_by=seconds),
        "created": f"{record['created_at']:%Y-%m-%d %H:%M}",
    }


def _asked(request: Request) -> BoardOptions:
    asked = request.query_params
    return BoardOptions(True, asked.get("query", "").strip(), "trials" in asked, "archived" in asked)


def _answer(read: Callable[[Request], tuple[Page, BoardOptions]]) -> Callable[[Request], Response]:
    """Request handler that reads and renders a page in a thread; an error becomes a page, too."""

    def answer(request: Request) -> Response:
        status = 200
        try:
            page, served = read(request)
        except OrchestratorError as error:
            status = 400 if isinstance(error, InputError) else 404 if isinstance(error, NotFoundError) else 503
            page = Page("This cannot be shown", "", [Section("Why", [Code(str(error))])])
            served = replace(_asked(request), is_live=False) if request.url.path == "/" else BoardOptions()
        return HTMLResponse(render(page, served), status)

    return answer


def _library(request: Request) -> Response:
    """Plotly.js, which a browser fetches once a day."""
    return Response(plotly_source(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

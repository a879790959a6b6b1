"""Addresses of the board, and what answers to each. Everything is read; nothing can be changed from a browser.

/                    the list of runs, with a query
/rows?filter=…       a window of that list, as JSON
/runs/ID             a run, a trial, a sweep or a pipeline, as `orchestrator report` writes it; of a name the newest
/compare?runs=A,B    runs side by side
/plotly.js           the library that draws charts, kept by the browser
"""

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from orchestrator.board.comparing_page import MAX_RUNS, comparing_page
from orchestrator.board.kept_orders import KeptOrders, ListQuery
from orchestrator.board.run_rows import Window, num_rows, run_rows
from orchestrator.errors import InputError, NotFoundError, OrchestratorError
from orchestrator.reports.blocks import Page, Section, Words
from orchestrator.reports.rendering import Served, page_style, plotly_source, render
from orchestrator.reports.run_page import run_page
from orchestrator.reports.task_page import task_page
from orchestrator.run_states import RunState
from orchestrator.web.guard import App, Guard
from orchestrator.web.server import LOOPBACK_NAMES

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.registry import Registry

_LIBRARY = "/plotly.js"
_REFRESH_S = 5.0
_MOST_ROWS = 2**31
"""Rows of any registry at most: larger numbers are none that a database takes."""
_AT_WORK = (RunState.PENDING, RunState.RUNNING)
_STATUSES = {InputError: 400, NotFoundError: 404}
"""Statuses of errors that a request causes; any other is the registry's: 503."""


def build_app(registry: "Registry", cost_of: Callable[["RunRecord"], str | None] = lambda run: None) -> App:
    """Build the application that shows a registry to the browsers of this machine, by their own names for it alone.

    Args:
        cost_of: one line on what a run has taken.
    """
    board = _Board(registry, cost_of)
    routes = [
        Route("/", board.list),
        Route("/rows", board.rows),
        Route("/runs/{run_id:path}", board.run),
        Route("/compare", board.comparison),
        Route("/tasks/{task}", board.task),
        Route(_LIBRARY, _library),
    ]
    return Guard(Starlette(routes=routes), token=None, hosts=LOOPBACK_NAMES)


class _Board:
    """Answers to requests, each made in a thread, so that a slow one holds no other back."""

    def __init__(self, registry: "Registry", cost_of: Callable[["RunRecord"], str | None]) -> None:
        self._registry = registry
        self._orders = KeptOrders(registry)
        self._cost_of = cost_of

    async def list(self, request: Request) -> Response:
        """The page of the list; its rows are asked for by its script."""
        page = files("orchestrator.board").joinpath("list.html").read_text(encoding="utf-8")
        return HTMLResponse(page.replace("/* page.css */", page_style()))

    async def rows(self, request: Request) -> Response:
        """A window of the list, and how many rows it has as a whole, unless `count=no`.

        After the answer the order of the list is sorted, where it has to be, for the windows that follow.
        """
        asked = request.query_params
        is_counted = asked.get("count") != "no"
        try:
            window = Window(
                ListQuery(
                    asked.get("filter", ""),
                    asked.get("sort") or "-created_at",
                    trials=asked.get("trials") == "yes",
                    archived=asked.get("archived") == "yes",
                ),
                offset=min(max(0, int(asked.get("offset", 0))), _MOST_ROWS),
                limit=max(1, int(asked.get("limit", 100))),
            )
        except ValueError:
            return JSONResponse({"error": "offset and limit are whole numbers"}, 400)

        def read() -> Response:
            rows = run_rows(self._registry, self._orders, window)
            total = {"total": num_rows(self._registry, self._orders, window)} if is_counted else {}
            is_whole = not window.offset and len(rows) < window.limit
            renew = None if is_whole else BackgroundTask(self._orders.renew, window.query, is_read=window.offset > 0)
            return JSONResponse({"rows": rows, **total}, background=renew)

        try:
            return await run_in_threadpool(read)
        except OrchestratorError as error:
            return JSONResponse({"error": str(error)}, _status(error))

    async def run(self, request: Request) -> Response:
        """The page of a run; one that is at work looks for what is new."""
        run_id = request.path_params["run_id"]

        def read() -> tuple[Page, bool]:
            run = self._registry.find_run(run_id)
            cost = self._cost_of(run)
            return run_page(self._registry, run, {"cost": cost} if cost else None), run.state in _AT_WORK

        return await _page_of(read)

    async def comparison(self, request: Request) -> Response:
        """The page of several runs side by side."""
        run_ids = [run_id for run_id in request.query_params.get("runs", "").split(",") if run_id]

        def read() -> tuple[Page, bool]:
            if not 2 <= len(run_ids) <= MAX_RUNS:
                raise InputError(f"name 2 to {MAX_RUNS} runs; these are {len(run_ids)}")
            return comparing_page(self._registry, [self._registry.find_run(run_id) for run_id in run_ids]), False

        return await _page_of(read)

    async def task(self, request: Request) -> Response:
        """The page of a task."""
        task = request.path_params["task"]

        def read() -> tuple[Page, bool]:
            if task not in self._registry.ranked_tasks():
                raise NotFoundError(f"No run of task {task} has ended with a score.")
            return task_page(self._registry, task), False

        return await _page_of(read)


async def _page_of(read: Callable[[], tuple[Page, bool]]) -> Response:
    """Answer with a page that is read and rendered in a thread; what cannot be read is told on a page, too."""

    def answer() -> Response:
        try:
            page, is_live = read()
            status = 200
        except OrchestratorError as error:
            page = Page("This cannot be shown", "", [Section("Why", [Words(str(error))])])
            is_live, status = False, _status(error)
        return HTMLResponse(render(page, Served(_LIBRARY, "/", "/runs/", _REFRESH_S if is_live else None)), status)

    return await run_in_threadpool(answer)


async def _library(request: Request) -> Response:
    """Plotly.js, which a browser fetches once a day."""
    return Response(plotly_source(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


def _status(error: OrchestratorError) -> int:
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 503)

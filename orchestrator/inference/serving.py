"""The HTTP application of a model: a page, a description of the model, and answers to inputs as JSON.

    GET  /                the page
    GET  /health          whether the server lives
    GET  /v1/model        the model: what it reads, its labels, an example
    POST /v1/answers      {"inputs": [...]} → {"answers": [...]}

Every refusal is JSON: {"error": {"field": "inputs[2]", "message": "…"}}. Requests that come while the model computes
are answered together afterwards, in batches by length.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from bert_core.config import BertConfig
from bert_core.constants import AskedPrecision
from orchestrator.base.errors import InputError
from orchestrator.base.web import MAX_BODY_BYTES, App, Guard, listening, names_of, serve_app, url_of
from orchestrator.cluster.own_errors import last_line
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.model_folder import find_head
from orchestrator.inference.embedder import LineEmbedder
from orchestrator.inference.line_blocks import Abilities, AnsweringModel, ModelInput
from orchestrator.inference.predictor import Predictor
from orchestrator.inference.pretraining_heads import MaskFiller
from orchestrator.storage import local_copy
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair

logger = logging.getLogger(__name__)
MAX_INPUTS = 256
"""Number of inputs of a request at most."""
MAX_REQUESTS = 32
"""Number of requests that are answered together at most."""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LINE = re.compile(r"line (\d+)(?: is |: )")

Answered = list[dict[str, Any]] | InputError


class RefusedError(Exception):
    """Error for a request that cannot be answered: its status, the field that is wrong, and what to do."""

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(status, field, message)
        self.status, self.field, self.message = status, field, message

    @classmethod
    def of_input(cls, error: InputError) -> "RefusedError":
        """An error about `line 3` of what was asked, as one about its third input."""
        message = str(error)
        found = _LINE.match(message)
        if found is None:
            return cls(422, "inputs", message)
        rest = message[found.end() :]
        return cls(422, f"inputs[{int(found.group(1)) - 1}]", f"is {rest}" if " is " in found.group() else rest)


class AnswerQueue:
    """Queue of requests in front of a model, which answers in one thread, several requests at a time."""

    def __init__(self, answering: AnsweringModel) -> None:
        self._answering = answering
        self._waiting: list[tuple[Sequence[ModelInput], asyncio.Future[Answered]]] = []
        self._work: asyncio.Task[None] | None = None

    async def ask(self, inputs: Sequence[ModelInput]) -> list[dict[str, Any]]:
        """Have inputs answered. Raises: RefusedError."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append((inputs, future))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_waiting())
        try:
            answered = await future
        except Exception as error:  # as of a card without memory: the server lives on
            logger.warning(f"a request could not be answered: {last_line(error)}")
            raise RefusedError(503, "inputs", f"the model could not answer ({last_line(error)}); ask again") from error
        if isinstance(answered, InputError):
            raise RefusedError.of_input(answered)
        return answered

    async def _answer_waiting(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MAX_REQUESTS], self._waiting[MAX_REQUESTS:]
            try:
                requests = [inputs for inputs, _ in taken]
                answers = await asyncio.to_thread(answer_together, self._answering, requests)
            except Exception as error:
                for _, future in taken:
                    if not future.done():  # whoever asked may have gone
                        future.set_exception(error)
                continue
            for (_, future), answered in zip(taken, answers, strict=True):
                if not future.done():
                    future.set_result(answered)


def answer_together(answering: AnsweringModel, requests: Sequence[Sequence[ModelInput]]) -> list[Answered]:
    """Answer the inputs of several requests in batches by length; where one of them is wrong, each request alone.

    A request that is alone is answered to the bit as `orchestrator predict` answers a file of its inputs. Beside others
    the last digits may differ, since a batch's sums are made in another order.
    """
    if len(requests) > 1:
        with suppress(InputError):
            answers = iter(answering.answer([given for inputs in requests for given in inputs]))
            return [[next(answers) for _ in inputs] for inputs in requests]
    return [_answer_alone(answering, inputs) for inputs in requests]


def _answer_alone(answering: AnsweringModel, inputs: Sequence[ModelInput]) -> Answered:
    try:
        return answering.answer(inputs)
    except InputError as error:
        return error


def build_app(name: str, answering: AnsweringModel, token: str | None, hosts: Sequence[str] = ()) -> App:
    """Build the application for a model.

    Args:
        token: which requests must carry; None: none is needed.
        hosts: names by which requests may call this server, so that no page of another name can reach it; none: by any.
    """
    model = {"name": name, **asdict(answering.abilities), "max_inputs": MAX_INPUTS, "max_body_bytes": MAX_BODY_BYTES}
    page = (files(__package__) / "serving_page.html").read_text(encoding="utf-8")
    queue = AnswerQueue(answering)

    async def show_page(request: Request) -> HTMLResponse:
        return HTMLResponse(page, headers=_PAGE_HEADERS)

    async def tell_health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def describe_model(request: Request) -> JSONResponse:
        return JSONResponse(model)

    async def answer_inputs(request: Request) -> JSONResponse:
        return JSONResponse({"answers": await queue.ask(await _read_inputs(request))})

    routes = [
        Route("/", show_page),
        Route("/health", tell_health),
        Route("/v1/model", describe_model),
        Route("/v1/answers", answer_inputs, methods=["POST"]),
    ]
    refusals: dict[Any, Any] = {HTTPException: _refuse, RefusedError: _refuse}
    return Guard(Starlette(routes=routes, exception_handlers=refusals), token, hosts)


async def _read_inputs(request: Request) -> list[ModelInput]:
    """Read the inputs of a request. Raises: RefusedError, naming the first field that is wrong."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(422, "body", 'send JSON like {"inputs": ["a text"]} with Content-Type: application/json')
    try:
        body = json.loads(await request.body(), parse_constant=lambda _: None)  # NaN and the like, which JSON has not
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "body", f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RefusedError(422, "body", 'must be an object like {"inputs": ["a text"]}')
    for field in body.keys() - {"inputs"}:
        raise RefusedError(422, field, "there is no such field; there is: inputs")
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_INPUTS:
        raise RefusedError(422, "inputs", f"must be a list of 1 to {MAX_INPUTS} inputs")
    for number, given in enumerate(inputs):
        if not isinstance(given, str | dict):
            raise RefusedError(422, f"inputs[{number}]", "must be a text, or an object with the keys of /v1/model")
        if has_half_a_pair(given):
            raise RefusedError(422, f"inputs[{number}]", HALF_A_PAIR)
    return inputs


async def _refuse(request: Request, error: RefusedError | HTTPException) -> JSONResponse:
    if isinstance(error, HTTPException):
        message = f"{error.detail}; there are /v1/answers (POST), /v1/model and /health"
        error = RefusedError(error.status_code, request.url.path, message)
    return JSONResponse({"error": {"field": error.field, "message": error.message}}, error.status)


def load_answering(folder: str, device: str = "cpu", precision: AskedPrecision = "auto") -> AnsweringModel:
    """Load whatever model a folder has. Raises: CheckpointError, TokenizerError."""
    local = local_copy(folder)
    head = find_head(local, BertConfig.from_pretrained(local))
    if head is None:
        return MaskFiller.load(folder, device, precision)
    kind = LineEmbedder if HEADS[head].gives_vectors else Predictor
    return kind.load(folder, device=device, precision=precision)


def serve_model(
    name: str,
    folder: str,
    on_ready: Callable[[str, Abilities], None],
    *,
    host: str,
    port: int,
    device: str,
    token: str | None,
    precision: AskedPrecision,
) -> None:
    """Serve a model's folder until this process is interrupted, which is a `KeyboardInterrupt`.

    Args:
        on_ready: called with the URL, and what the model can do, once it answers.
        port: 0 for any free one.

    Raises: InputError for an address or a port that cannot be taken; CheckpointError, TokenizerError.
    """
    with listening(host, port) as listener:
        answering = load_answering(folder, device, precision)
        app = build_app(name, answering, token, names_of(host))
        url = url_of(host, listener.getsockname()[1])
        serve_app(app, listener, lambda: on_ready(url, answering.abilities))

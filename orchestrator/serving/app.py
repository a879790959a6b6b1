"""The HTTP application: a page, a description of the model, and answers to inputs as JSON.

    GET  /                the page
    GET  /health          whether the server lives
    GET  /openapi.json    this interface, in OpenAPI
    GET  /v1/model        the model: what it reads, its labels, an example
    POST /v1/answers      {"inputs": [...]} → {"answers": [...]}

Every refusal is JSON: {"error": {"field": "inputs[2]", "message": "…"}}.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from orchestrator import __version__
from orchestrator.inference.answering import Abilities, Read
from orchestrator.serving.refusals import RefusedError
from orchestrator.storage.text_lines import has_half_a_pair
from orchestrator.web.guard import MAX_BODY_BYTES, App, Guard

MAX_INPUTS = 256
"""Number of inputs of a request at most."""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Ask = Callable[[Sequence[Read]], Awaitable[list[dict[str, Any]]]]
"""Function that has inputs answered. Raises: RefusedError."""


class Question(BaseModel):
    """Inputs to be answered, in order."""

    model_config = ConfigDict(extra="forbid")

    inputs: Annotated[list[str | dict[str, Any]], Field(min_length=1, max_length=MAX_INPUTS)]
    """Texts, or objects with the keys that the model reads."""


class Answers(BaseModel):
    """One answer for each input: what it said, and what the model says."""

    answers: list[dict[str, Any]]


class Model(BaseModel):
    """The model that is served."""

    name: str
    head: str
    keys: list[str]
    labels: list[str]
    takes_text: bool
    example: dict[str, Any]
    max_inputs: int = MAX_INPUTS
    max_body_bytes: int = MAX_BODY_BYTES


class Problem(BaseModel):
    """The field of a request that is wrong, and what to do."""

    field: str
    message: str


class Refusal(BaseModel):
    """Answer to a request that cannot be carried out."""

    error: Problem


def build_app(name: str, abilities: Abilities, ask: Ask, token: str | None, hosts: Sequence[str] = ()) -> App:
    """Build the application for a model.

    Args:
        token: which requests must carry; None: none is needed.
        hosts: names by which requests may call this server, so that no page of another name can reach it; none: by any.
    """
    model = Model(name=name, **asdict(abilities))
    app = FastAPI(
        title=f"{name} ({abilities.head})",
        version=__version__,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        responses={status: {"model": Refusal} for status in (400, 401, 413, 422, 503)},
    )
    if token is not None:
        _describe_token(app)
    page = (files(__package__) / "page.html").read_text(encoding="utf-8")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=_PAGE_HEADERS)

    @app.get("/health")
    async def tell_health() -> dict[str, str]:
        """Say that the server lives."""
        return {"status": "ok"}

    @app.get("/v1/model")
    async def describe_model() -> Model:
        """Describe the model: what it reads, its labels, an example."""
        return model

    @app.post("/v1/answers", openapi_extra=_examples(abilities))
    async def answer_inputs(question: Question) -> Answers:
        """Answer inputs, in order."""
        for number, read in enumerate(question.inputs):
            if has_half_a_pair(read):
                raise RefusedError(422, f"inputs[{number}]", "has half a surrogate pair, which is no character")
        return Answers(answers=await ask(question.inputs))

    app.add_exception_handler(RequestValidationError, _refuse_values)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(RefusedError, _refuse)
    return Guard(app, token, hosts)


def _examples(abilities: Abilities) -> dict[str, Any]:
    """An example of a request, for the description of the interface."""
    return {"requestBody": {"content": {"application/json": {"example": {"inputs": [abilities.example]}}}}}


def _describe_token(app: FastAPI) -> None:
    """Say in the description of the interface that requests carry a token."""
    describe = app.openapi

    def describe_with_token() -> dict[str, Any]:
        described = describe()
        described.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
        return described

    app.openapi = describe_with_token  # type: ignore[method-assign]


def _refusal(status: int, field: str, message: str) -> JSONResponse:
    return JSONResponse(Refusal(error=Problem(field=field, message=message)).model_dump(), status)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedError)
    return _refusal(error.status, error.field, error.message)


async def _refuse_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    known = "there are /v1/answers (POST), /v1/model, /health and /openapi.json"
    message = {404: f"there is nothing here; {known}", 405: f"this path takes another method; {known}"}
    return _refusal(error.status_code, request.url.path, message.get(error.status_code, str(error.detail)))


async def _refuse_values(request: Request, error: Exception) -> JSONResponse:
    """Name the first field that is wrong: JSON that is not whole, a missing key, a value of another kind."""
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        reason = problem.get("ctx", {}).get("error", "")
        return _refusal(400, "body", f"the body is not JSON: {reason} at character {problem['loc'][-1]}")
    path = [part for part in problem["loc"][1:] if not isinstance(part, str) or re.fullmatch(r"\w+", part)]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    if re.match(r"inputs\[\d+\]", field):
        return _refusal(422, field.partition("]")[0] + "]", "must be a text, or an object with the keys of /v1/model")
    if not field:
        return _refusal(422, "body", 'send JSON like {"inputs": ["a text"]} with Content-Type: application/json')
    return _refusal(422, field, str(problem["msg"]))

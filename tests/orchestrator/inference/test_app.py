"""The HTTP application of a model: answers, refusals that name the field, token, sizes, the page.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_app.py
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.base.errors import InputError
from orchestrator.base.web import MAX_BODY_BYTES
from orchestrator.inference import predict
from orchestrator.inference.line_blocks import Abilities, ModelInput
from orchestrator.inference.serving import MAX_INPUTS, AnswerQueue, build_app, load_answering
from tests.orchestrator.tiny_models import save_encoder, save_pair_model

TOKEN = "0123456789abcdef"
CALLER = {"base_url": "http://127.0.0.1:8000", "raise_server_exceptions": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_pair_model(tmp_path_factory.mktemp("models") / "m", ["no", "yes"])


@pytest.fixture(scope="module")
def client(folder: str) -> TestClient:
    return TestClient(build_app("tiny", load_answering(folder), None), **CALLER)


def error(response: Any) -> tuple[int, str, str]:
    """Status, field and message of a refusal."""
    problem = response.json()["error"]
    return response.status_code, problem["field"], problem["message"]


def test_answers_are_those_of_predict_to_the_bit(client: TestClient, folder: str) -> None:
    inputs = ["cats rest", {"text": "a cold river", "text_pair": "rain falls", "id": 7}, "old stones\tnear planes"]
    lines = [read if isinstance(read, str) else json.dumps(read) for read in inputs]
    response = client.post("/v1/answers", json={"inputs": inputs})
    assert response.status_code == 200
    assert response.json() == {"answers": list(predict(folder, lines))}


def test_a_text_may_begin_with_a_brace(client: TestClient) -> None:
    (answer,) = client.post("/v1/answers", json={"inputs": ["{cats"]}).json()["answers"]
    assert answer["text"] == "{cats"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("{", 400, "body"),
        ("[]", 422, "body"),
        ("{}", 422, "inputs"),
        ('{"inputs": []}', 422, "inputs"),
        ('{"inputs": ["a"], "input": 1}', 422, "input"),
        ('{"inputs": ["a", 3]}', 422, "inputs[1]"),
        ('{"inputs": ["a", {"txt": "b"}]}', 422, "inputs[1]"),
        ('{"inputs": [{"text": [3]}]}', 422, "inputs[0]"),
        ('{"inputs": ["\\ud800"]}', 422, "inputs[0]"),
        (json.dumps({"inputs": ["a"] * (MAX_INPUTS + 1)}), 422, "inputs"),
        (json.dumps({"inputs": ["a" * MAX_BODY_BYTES]}), 413, "body"),
    ],
)
def test_a_wrong_request_is_refused_with_its_field(client: TestClient, body: str, status: int, field: str) -> None:
    found = error(client.post("/v1/answers", content=body, headers={"Content-Type": "application/json"}))
    assert found[:2] == (status, field)


def test_a_body_without_a_length_is_held_to_the_limit(client: TestClient) -> None:
    pieces = (b"x" * 65536 for _ in range(MAX_BODY_BYTES // 65536 + 1))
    assert error(client.post("/v1/answers", content=pieces))[:2] == (413, "body")


def test_another_content_type_is_refused(client: TestClient) -> None:
    response = client.post("/v1/answers", content='{"inputs": ["a"]}', headers={"Content-Type": "text/plain"})
    assert error(response)[:2] == (422, "body")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/answers", 405)])
def test_another_path_or_method_is_refused_with_what_there_is(
    client: TestClient, method: str, path: str, status: int
) -> None:
    found = error(client.request(method, path))
    assert found[0] == status
    assert "/v1/answers" in found[2]


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong-wrong-wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", "Bearer ü"]
)
@pytest.mark.parametrize("path", ["/v1/model", "/v1/answers", "/openapi.json", "/nowhere"])
def test_without_the_right_token_nothing_is_answered(folder: str, path: str, header: str | None) -> None:
    client = TestClient(build_app("tiny", load_answering(folder), TOKEN), **CALLER)
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    status, field, message = error(client.post(path, headers=headers, json={"inputs": ["a"]}))
    assert (status, field) == (401, "Authorization")
    assert TOKEN not in message


def test_with_the_token_answers_come(folder: str) -> None:
    client = TestClient(build_app("tiny", load_answering(folder), TOKEN), **CALLER)
    response = client.post("/v1/answers", headers={"Authorization": f"Bearer {TOKEN}"}, json={"inputs": ["a"]})
    assert response.status_code == 200
    assert client.get("/health").json() == {"status": "ok"}
    assert "tiny" not in client.get("/").text


def test_a_page_of_another_name_does_not_reach_this_machine(folder: str) -> None:
    app = build_app("tiny", load_answering(folder), None, ("localhost", "127.0.0.1", "[::1]"))
    status, field, _ = error(TestClient(app, base_url="http://evil.example").get("/v1/model"))
    assert (status, field) == (400, "Host")
    assert TestClient(app, base_url="http://localhost:8000").get("/v1/model").status_code == 200
    assert TestClient(app, base_url="http://[::1]:8000").get("/v1/model").status_code == 200


def test_the_model_is_described_with_an_example_that_is_answered(client: TestClient) -> None:
    described = client.get("/v1/model").json()
    assert (described["name"], described["labels"]) == ("tiny", ["no", "yes"])
    assert client.post("/v1/answers", json={"inputs": [described["example"]]}).status_code == 200


def test_the_page_loads_nothing_and_never_makes_markup_of_data(client: TestClient) -> None:
    response = client.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not [
        word
        for word in ("http://", "https://", "innerHTML", "outerHTML", "insertAdjacent", "document.write")
        if word in response.text
    ]
    assert 'name="viewport"' in response.text
    assert "prefers-color-scheme: dark" in response.text


def test_an_embedding_model_answers_with_vectors(tmp_path: Path) -> None:
    from orchestrator.inference import embed

    folder = save_encoder(tmp_path / "encoder", 1)
    client = TestClient(build_app("tiny", load_answering(folder, precision="fp32"), None), **CALLER)
    assert client.get("/v1/model").json()["head"] == "embedding"
    (answer,) = client.post("/v1/answers", json={"inputs": ["cats rest"]}).json()["answers"]
    ((_, vector),) = embed(folder, ["cats rest"])
    assert answer == {"text": "cats rest", "embedding": vector.tolist()}
    assert error(client.post("/v1/answers", json={"inputs": ["cats", ""]}))[1] == "inputs[1]"


class Echo:
    """A model that answers with the length of a text, and counts the inputs of each call; nothing fits with `huge`."""

    abilities = Abilities("echo", ("text",), (), True, {"text": "a"})

    def __init__(self) -> None:
        self.calls: list[int] = []

    def answer(self, inputs: Sequence[ModelInput]) -> list[dict[str, Any]]:
        self.calls.append(len(inputs))
        if "huge" in inputs:
            raise RuntimeError("out of memory")
        for number, read in enumerate(inputs, start=1):
            if not read:
                raise InputError(f"line {number}: the text has no token; leave it out")
        return [{"length": len(read)} for read in inputs]


async def ask_at_once(echo: Echo, *requests: list[str]) -> list[Any]:
    """Answers to requests that come in the same moment."""
    queue = AnswerQueue(echo)
    return await asyncio.gather(*map(queue.ask, requests), return_exceptions=True)


def test_requests_of_the_same_moment_are_answered_together_and_each_gets_its_own() -> None:
    echo = Echo()
    answers = asyncio.run(ask_at_once(echo, ["a", "bb"], ["ccc"]))
    assert answers == [[{"length": 1}, {"length": 2}], [{"length": 3}]]
    assert echo.calls == [3]


def test_a_wrong_request_fails_alone_and_is_counted_from_its_own_first_input() -> None:
    first, second = asyncio.run(ask_at_once(Echo(), ["a"], ["b", ""]))
    assert first == [{"length": 1}]
    assert (second.status, second.field) == (422, "inputs[1]")


def test_a_model_that_fails_is_503_and_answers_again() -> None:
    client = TestClient(build_app("tiny", Echo(), None), **CALLER)
    assert error(client.post("/v1/answers", json={"inputs": ["huge"]}))[:2] == (503, "inputs")
    assert client.post("/v1/answers", json={"inputs": ["a"]}).json() == {"answers": [{"length": 1}]}

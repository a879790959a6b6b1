"""A cloud's notice that a host goes, from a stand-in for its metadata service; test_moving shows the draining itself.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_drain_notice.py
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from orchestrator.cluster import drain_notice
from orchestrator.cluster.drain_notice import CLOUDS, Notice, find_aws_notice, find_gcp_notice

TOKEN = "a token of a minute"


@contextmanager
def metadata_service(answers: dict[str, str], header: tuple[str, str]) -> Iterator[str]:
    """Serve answers by path, to who shows a header; the token of AWS to who puts. Yields the service's address."""

    class Service(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.answer(TOKEN if self.path == "/latest/api/token" else None)

        def do_GET(self) -> None:
            self.answer(answers.get(self.path) if self.headers[header[0]] == header[1] else None)

        def answer(self, text: str | None) -> None:
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_aws_says_when_it_takes_a_machine_back() -> None:
    answers: dict[str, str] = {}
    with metadata_service(answers, ("X-aws-ec2-metadata-token", TOKEN)) as address:
        assert find_aws_notice(address) is None
        end = datetime.now(UTC) + timedelta(seconds=120)
        answers["/latest/meta-data/spot/instance-action"] = f'{{"action": "terminate", "time": "{end:%FT%TZ}"}}'
        notice = find_aws_notice(address)
    assert notice is not None
    assert notice.reason == "AWS will terminate this spot machine"
    assert 60 < notice.left_s <= 120


def test_google_says_that_it_takes_a_machine_back() -> None:
    path = "/computeMetadata/v1/instance/preempted"
    answers = {path: "FALSE"}
    with metadata_service(answers, ("Metadata-Flavor", "Google")) as address:
        assert find_gcp_notice(address) is None
        answers[path] = "TRUE"
        assert find_gcp_notice(address) == Notice("Google Cloud takes this spot machine back", 30.0)


def test_the_monitor_is_told_how_long_the_host_may_still_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_notice, "AWAY", tmp_path / "host" / "away")
    drain_notice.stay_away(30.0)
    assert 60 < float((tmp_path / "host" / "away").read_text()) - time.time() <= 90


@pytest.mark.parametrize("find", [find_aws_notice, find_gcp_notice])
def test_a_host_without_a_metadata_service_has_no_notice(find: object) -> None:
    assert callable(find)
    assert find("http://127.0.0.1:1") is None
    assert find in CLOUDS.values()


def test_a_word_that_is_no_cloud_is_told_what_may_stand_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert drain_notice.main("azure", "192.0.2.10:6379") == 2
    assert capsys.readouterr().err == "azure is neither aws nor gcp nor a whole number of seconds\n"

"""Where things are kept: which of option, environment and default wins.

Alone: .venv/bin/pytest tests/orchestrator/base/test_settings.py
"""

from pathlib import Path

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.settings import Settings, cache_folder, has_password, without_password


def test_defaults_lie_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_options(environ={})
    assert settings.home == tmp_path / ".orchestrator"
    assert settings.storage == str(tmp_path / ".orchestrator" / "storage")
    assert settings.registry == f"sqlite:///{tmp_path}/.orchestrator/registry.sqlite"
    assert settings.address is None


def test_an_option_wins_over_the_environment_and_that_over_the_default(tmp_path: Path) -> None:
    environ = {
        "ORCHESTRATOR_HOME": str(tmp_path / "env"),
        "ORCHESTRATOR_STORAGE": "s3://bucket/lab",
        "ORCHESTRATOR_REGISTRY": "postgresql://h/db",
        "RAY_ADDRESS": "10.0.0.1:6379",
    }
    assert Settings.from_options(environ=environ) == Settings(
        tmp_path / "env", "s3://bucket/lab", "postgresql://h/db", "10.0.0.1:6379"
    )
    given = Settings.from_options(tmp_path / "opt", "gs://x", "sqlite:///y.db", "auto", environ=environ)
    assert given == Settings(tmp_path / "opt", "gs://x", "sqlite:///y.db", "auto")


def test_a_relative_storage_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.from_options(storage="data", environ={}).storage == str(tmp_path / "data")


def test_what_was_given_is_told_from_defaults(tmp_path: Path) -> None:
    assert Settings.from_options(environ={}).given == frozenset()
    settings = Settings.from_options(tmp_path, environ={"ORCHESTRATOR_STORAGE": "s3://bucket"})
    assert settings.given == {"home", "storage"}


@pytest.mark.parametrize("uri", ["hdfs://me:secret@host/lab", "abfs://box/lab?password=secret"])
def test_a_storage_with_a_password_is_refused_and_not_repeated(uri: str) -> None:
    for options in ({"storage": uri, "environ": {}}, {"environ": {"ORCHESTRATOR_STORAGE": uri}}):
        with pytest.raises(InputError, match=r"FSSPEC_(HDFS|ABFS)_PASSWORD") as caught:
            Settings.from_options(**options)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["s3://bucket/lab", "hdfs://node:8020/lab@2", "hdfs://me@host/lab", "/mnt/a:b@c/lab", "data/passage?pass=1"],
)
def test_a_storage_without_one_is_kept(uri: str) -> None:
    assert Settings.from_options(storage=uri, environ={}).storage.endswith(uri)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://lab:can/ary?1#2@db/lab", "postgresql://lab:***@db/lab"),
        ("postgresql+psycopg://:canary@/lab", "postgresql+psycopg://:***@/lab"),
        (
            "postgresql://db/lab?user=me&PASSWORD=canary&sslmode=require",
            "postgresql://db/lab?user=me&PASSWORD=***&sslmode=require",
        ),
        ("postgresql://db/lab?ssl%70assword=canary", "postgresql://db/lab?ssl%70assword=***"),
    ],
)
def test_a_password_is_masked_wherever_a_url_holds_it(url: str, shown: str) -> None:
    assert has_password(url)
    assert without_password(url) == shown


@pytest.mark.parametrize("url", ["postgresql://me@db:5432/lab", "sqlite:///a.sqlite", "file:/mnt/url", "a:b@c.sqlite"])
def test_a_location_without_a_password_is_shown_whole(url: str) -> None:
    assert not has_password(url)
    assert without_password(url) == url


def test_settings_show_no_password() -> None:
    assert "canary" not in repr(Settings.from_options(registry="postgresql://me:canary@db/lab", environ={}))


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "~/.cache/bert-orchestrator"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/bert-orchestrator"),
        ({"XDG_CACHE_HOME": "/caches", "ORCHESTRATOR_CACHE": "/scratch/me"}, "/scratch/me"),
    ],
)
def test_the_cache_folder_is_the_variables_or_the_users(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == Path(folder).expanduser()

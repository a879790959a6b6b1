"""Registries for tests, each on SQLite and, where there is a server, on PostgreSQL; an S3 server; tiny models.

PostgreSQL is the server of ORCHESTRATOR_TEST_POSTGRES_URL, else one started from the machine's own binaries.
The models are imported where a test asks for one, since torch is long in loading.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, make_url, text

from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.specs import TaskSpec
from tests.orchestrator.execution.job_cluster import JobCluster
from tests.orchestrator.postgres_server import find_binaries, running_server
from tests.orchestrator.s3_server import running_s3


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server's URL."""
    given = os.environ.get("ORCHESTRATOR_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL: neither ORCHESTRATOR_TEST_POSTGRES_URL nor initdb and pg_ctl on this machine")
    with running_server(binaries) as server:
        yield server.url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[dict[str, str]]:
    """An S3 server, and the environment in which other processes find it; skipped where moto is not installed."""
    with running_s3() as environment:
        yield environment


@contextmanager
def empty_schema(server_url: str) -> Iterator[str]:
    """The URL of an empty schema of its own on a server."""
    schema = f"test_{uuid4().hex[:12]}"
    engine = create_engine(make_url(server_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    url = make_url(server_url).update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


@pytest.fixture
def postgres_location(postgres_url: str) -> Iterator[str]:
    """An empty PostgreSQL registry's URL."""
    with empty_schema(postgres_url) as url:
        yield url


@pytest.fixture(scope="module")
def postgres_module_location(postgres_url: str) -> Iterator[str]:
    """The same, shared by a file's tests."""
    with empty_schema(postgres_url) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty registry can be made, once per kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "home" / "registry.sqlite")
    found: str = request.getfixturevalue("postgres_location")
    return found


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with the tables, which hundreds of tests copy: making them takes 25 ms, a copy 1."""
    path = tmp_path_factory.mktemp("empty") / "registry.sqlite"
    with Registry(str(path)) as opened:
        opened.open()
    return path


@pytest.fixture
def registry(location: str, empty_database: Path) -> Iterator[Registry]:
    """An empty registry, once per kind of database."""
    if "://" not in location:
        Path(location).parent.mkdir()
        shutil.copyfile(empty_database, location)
    with Registry(location) as opened:
        yield opened


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> JobCluster:
    """A cluster's job service without Ray, which whoever opens jobs gets."""
    made = JobCluster(tmp_path_factory.mktemp("head"))
    monkeypatch.setattr("orchestrator.execution.jobs._client", lambda address: made)
    return made


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are carried out in this process, without a Ray."""
    monkeypatch.setattr("orchestrator.execution.runner.connect", lambda *arguments, **options: nullcontext())
    monkeypatch.setattr("orchestrator.execution.runner.check_capacity", lambda *arguments: None)
    monkeypatch.setattr("orchestrator.kinds.base.cluster_resources", lambda: {"CPU": 8.0})
    monkeypatch.setattr("orchestrator.kinds.base.have_bf16", lambda **arguments: False)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a home that is not made yet, beside the inputs of small specs in the current folder."""
    from tests.orchestrator.small_specs import write_inputs

    monkeypatch.chdir(tmp_path)
    return write_inputs(tmp_path)


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a model that fills masks and follows sentences."""
    from tests.orchestrator.tiny_models import save_pretrained

    return save_pretrained(tmp_path_factory.mktemp("models") / "pretrained")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a model that embeds texts."""
    from tests.orchestrator.tiny_models import save_encoder

    return save_encoder(tmp_path_factory.mktemp("models") / "encoder", seed=0)


@pytest.fixture(scope="session")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a model that gives a pair of texts a score."""
    from tests.orchestrator.tiny_models import save_pair_model

    return save_pair_model(tmp_path_factory.mktemp("models") / "scorer", ["score"])


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a model that gives a pair of texts a class."""
    from tests.orchestrator.tiny_models import save_pair_model

    return save_pair_model(tmp_path_factory.mktemp("models") / "classifier", ["no", "yes"])


@pytest.fixture
def documents(tmp_path: Path) -> str:
    """A file of four documents, of which one has no text, with a blank line between them."""
    from tests.orchestrator.tiny_models import DOCUMENTS

    path = tmp_path / "documents.jsonl"
    path.write_text("\n\n".join(json.dumps(document) for document in DOCUMENTS))
    return str(path)


@pytest.fixture
def collection(documents: str, tmp_path: Path) -> TaskSpec:
    """A task of two queries over these documents, one of whose relevant documents has no text."""
    from tests.orchestrator.tiny_models import JUDGMENTS, QUERIES

    folder = tmp_path / "collection"
    folder.mkdir()
    Path(documents).rename(folder / "corpus.jsonl")
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in QUERIES))
    (folder / "qrels.tsv").write_text("\n".join(JUDGMENTS) + "\n")
    return TaskSpec(id="own", head="retrieval", folder=str(folder))

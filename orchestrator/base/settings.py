"""Settings: home, storage, registry, Ray's address, cache; from options, the environment, or defaults."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from orchestrator.base.errors import InputError, OrchestratorError

HOME_VARIABLE = "ORCHESTRATOR_HOME"
STORAGE_VARIABLE = "ORCHESTRATOR_STORAGE"
REGISTRY_VARIABLE = "ORCHESTRATOR_REGISTRY"
ADDRESS_VARIABLE = "RAY_ADDRESS"
_VARIABLES = {
    "home": HOME_VARIABLE,
    "storage": STORAGE_VARIABLE,
    "registry": REGISTRY_VARIABLE,
    "address": ADDRESS_VARIABLE,
}
API_ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
ASKED_AT_VARIABLE = "ORCHESTRATOR_ASKED_AT"
"""Set for the command of a job (`execution/jobs.py`), and for no other: the dashboard's address by which the
person who submitted it types further commands."""
CACHE_VARIABLE = "ORCHESTRATOR_CACHE"
SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "local", "memory")
"""Schemes of the URIs that are read and written. A list, as a spec that comes from someone else must not reach what the
machine alone can reach: a cloud's metadata address by http, a host by ssh, an archive through another file system.
`local` and `memory` stand for a remote store in tests."""

_PASSWORD = re.compile(r"(?<=://)(?P<user>[^:/@]*):[^@/?#]+@")
_PASSWORD_OF_DATABASE = re.compile(r"(?<=://)(?P<user>[^:/@]*):[^@]+@")
"""Pattern of the URL's password as the database's driver reads it: with `/`, `?` and `#` in it."""


@dataclass(frozen=True)
class Settings:
    """Paths and addresses that commands and runs use."""

    home: Path
    """Folder of this machine alone; holds the default registry and the default storage."""
    storage: str
    """A folder or URI that every node reaches."""
    registry: str = field(repr=False)
    """A path, a database URL, or `file:PATH` of a file with mode 0600 that holds one."""
    address: str | None = None
    """Address of the Ray to run on; None: a local one is started."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the settings that came from an option or the environment; the others are this machine's defaults."""
    typed: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the settings that came from an option."""

    @property
    def sent(self) -> frozenset[str]:
        """Names of the settings that go along to a cluster: what was typed, and a registry that is no file here.

        What else the environment says is meant for this machine.
        """
        return self.typed | ({"registry"} if "registry" in self.given and not lies_here(self.registry) else set())

    @classmethod
    def from_options(
        cls,
        home: str | Path | None = None,
        storage: str | None = None,
        registry: str | None = None,
        address: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Each setting from its option, else its environment variable, else its default.

        Raises: InputError for a storage whose URI has a password, or a scheme that is not in `SCHEMES`.
        """
        environ = os.environ if environ is None else environ
        typed = {"home": home, "storage": storage, "registry": registry, "address": address}
        given = {name: value or environ.get(_VARIABLES[name]) for name, value in typed.items()}
        home_path = Path(given["home"] or ".orchestrator").expanduser().absolute()
        place = str(given["storage"] or home_path / "storage")
        if "://" not in place:
            place = str(Path(place).expanduser().absolute())
        check_scheme(place)
        if "://" in place and has_password(place):
            scheme = urlsplit(place).scheme.upper()
            raise InputError(
                "the storage's URI has a password, which would stand in every run's record; leave it out and set it as "
                f"FSSPEC_{scheme}_PASSWORD, or in a file of ~/.config/fsspec with mode 0600, on every node"
            )
        return cls(
            home=home_path,
            storage=place,
            registry=str(given["registry"] or f"sqlite:///{home_path / 'registry.sqlite'}"),
            address=str(given["address"]) if given["address"] else None,
            given=frozenset(name for name, value in given.items() if value),
            typed=frozenset(name for name, value in typed.items() if value),
        )


def lies_here(registry: str) -> bool:
    """Whether a registry is a file of this machine; a `file:PATH` that is not there names one on a cluster."""
    if registry.startswith("file:"):
        return Path(registry.removeprefix("file:").removeprefix("//")).expanduser().exists()
    return "://" not in registry or registry.startswith("sqlite")


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Folder of this machine for copies of remote files, shared by all homes and runs of this user."""
    environ = os.environ if environ is None else environ
    caches = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(environ.get(CACHE_VARIABLE) or f"{caches}/bert-orchestrator").expanduser().absolute()


def has_password(url: str) -> bool:
    """Whether a URL has a password, as `user:password@` or as a parameter."""
    return without_password(url) != url


def without_password(url: str) -> str:
    """The URL with `***` in place of each password; a path or `file:PATH` stays as it is.

    >>> without_password("postgresql://lab:s3cret@db/lab?sslpassword=canary")
    'postgresql://lab:***@db/lab?sslpassword=***'
    """
    password = _PASSWORD_OF_DATABASE if url.startswith("postgres") else _PASSWORD
    address, mark, query = password.sub(r"\g<user>:***@", url).partition("?")
    return address + mark + "&".join(map(_without_secret, query.split("&")))


def _without_secret(parameter: str) -> str:
    """A query's `name=value`, with `***` for the value where the name says that it is a password."""
    name, equals, _ = parameter.partition("=")
    return f"{name}=***" if equals and "pass" in unquote(name).lower() else parameter


def check_scheme(place: str) -> None:
    """Check that a URI has one of the `SCHEMES`; a path of this machine passes. Raises: InputError."""
    scheme, mark, rest = place.partition("://")
    if not mark or scheme == "file":
        return
    if scheme not in SCHEMES or "::" in rest:
        shown = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
        problem = f"has the scheme {scheme}, which is not {'written' if scheme == 'hf' else 'read'} here"
        problem = "chains file systems by '::'" if "::" in place else problem
        allowed = ", ".join(f"{name}://" for name in SCHEMES if name not in ("file", "local", "memory"))
        raise InputError(f"{shown} {problem}; fetch it to a folder, or name a path or a URI with {allowed}")


def read_private(path: Path, what: str, error: type[OrchestratorError]) -> str:
    """Read a file that this user alone can read. Raises: `error`, naming the file and what it should hold."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "not text"
        raise error(f"{path}, which should hold {what}, cannot be read: {reason}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise error(f"{path} holds {what} and others can read it; run: chmod 600 {path}")
    return text.strip()

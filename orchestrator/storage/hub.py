"""The Hugging Face hub as a storage that is only read, with the cache, token and offline mode of `huggingface_hub`.

    hf://ORG/NAME[@REVISION]                   a model, as a folder of the files that are read here
    hf://datasets/ORG/NAME[@REVISION]/PATH     a file of a data set, or a pattern of files

A revision is a branch, a tag or a commit: `main` when left out. Runs record the commit (`pin`), so that they mean the
same files for ever. A file is downloaded once for all processes of a machine, and what is there needs no network.
"""

import errno
import json
import logging
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal

from bert_core.checkpoints.weight_files import INDEX_ENDING, WEIGHT_FILES, WEIGHTS_FILE
from bert_core.errors import CheckpointError
from orchestrator.base.console import size_text
from orchestrator.base.errors import InputError, NotFoundError

logger = logging.getLogger(__name__)
SCHEME = "hf://"
MOST_BYTES = 8 << 30
"""Bytes of weights that are downloaded without being insisted on: a BERT has a tenth."""
_REPOSITORY = r"[\w.-]+(?:/[\w.-]+)?"
_REVISION = r"refs/\w+/[\w.-]+|[^/@]+"
_NAME = re.compile(rf"(?P<repository>{_REPOSITORY})(?:@(?P<revision>{_REVISION}))?")
_PLACE = re.compile(rf"{SCHEME}(?P<datasets>datasets/)?{_NAME.pattern}(?:/(?P<path>.+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SMALL_FILES = (
    *("config*.json", "tokenizer*.json", "*_tokens*.json", "vocab.*", "merges.txt", "spm.model"),
    *("modules.json", "sentence_bert_config.json", "?_Pooling/config.json", "fine_tuning.json", "manifest.json"),
)
"""Patterns of a model's files beside its weights that something here reads."""


@dataclass(frozen=True)
class HubPlace:
    """A repository of the hub at a revision, and a path in it."""

    kind: Literal["model", "dataset"]
    repository: str
    revision: str | None
    path: str = ""
    """Path of a file or a pattern; empty for the whole repository."""

    @classmethod
    def parse(cls, uri: str) -> "HubPlace":
        """Read a URI. Raises: InputError, showing how one is written."""
        match = _PLACE.fullmatch(uri)
        if match is None:
            raise InputError(
                f"{uri} names nothing on the hub; write {SCHEME}ORG/NAME@REVISION for a model, "
                f"{SCHEME}datasets/ORG/NAME@REVISION/PATH for a file"
            )
        kind: Literal["model", "dataset"] = "dataset" if match["datasets"] else "model"
        return cls(kind, match["repository"], match["revision"], match["path"] or "")

    def __str__(self) -> str:
        folder = "datasets/" if self.kind == "dataset" else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}{folder}{self.repository}{revision}{'/' if self.path else ''}{self.path}"

    @property
    def missing(self) -> type[InputError | NotFoundError]:
        """Class of the error that something is not there: a model, or a file of data."""
        return NotFoundError if self.kind == "model" else InputError

    def pinned(self) -> "HubPlace":
        """The place with the commit that its revision means now, or meant when there was a network.

        Raises: NotFoundError, also where neither the hub nor the cache tells.
        """
        if self.revision is not None and _COMMIT.fullmatch(self.revision):
            return self
        from huggingface_hub import HfApi, constants

        with self._errors():
            found = HfApi().resolve_revision(
                self.repository, repo_type=self.kind, revision=self.revision, local_files_only=constants.HF_HUB_OFFLINE
            )
        return replace(self, revision=found.resolved)

    def fetch(self, names: Sequence[str], *, show_progress: bool = False) -> Path:
        """Download those of some files of the repository that are not in the cache; returns its folder there."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils.tqdm import tqdm

        class Bar(tqdm):
            def __init__(self, *args: Any, **settings: Any) -> None:
                is_hidden = not show_progress or not sys.stderr.isatty()
                settings |= {"disable": True} if is_hidden else {}
                super().__init__(*args, **settings)  # type: ignore[no-untyped-call]

        with self._errors():
            folder = snapshot_download(
                self.repository,
                repo_type=self.kind,
                revision=self.revision,
                allow_patterns=list(names),
                local_files_only=self._is_out_of_reach(),
                tqdm_class=Bar,
            )
        return Path(folder)

    def _is_out_of_reach(self) -> bool:
        """Whether the hub has to be asked and does not answer: `snapshot_download` would try for half a minute."""
        from huggingface_hub import HfApi, errors, get_cached_repo_tree

        try:
            get_cached_repo_tree(self.repository, repo_type=self.kind, revision=self.revision)
        except errors.CachedRepoTreeNotFoundError:
            try:
                HfApi().repo_info(self.repository, revision=self.revision, repo_type=self.kind)
            except errors.HfHubHTTPError:
                raise
            except Exception:  # of the package that makes the connection, which changes with the version
                return True
        return False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Tell what `huggingface_hub` raises as what a person can do about it."""
        from huggingface_hub import constants, errors

        what, log_in = f"{self.kind} {self.repository}", "log in: hf auth login, or HF_TOKEN"
        page = f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.repository}"
        try:
            yield
        except errors.GatedRepoError:
            raise InputError(f"{what} has terms to be accepted first: do so at {page}, and {log_in}") from None
        except errors.RepositoryNotFoundError:
            look = f"look for the name at {constants.ENDPOINT}/{self.kind}s"
            raise self.missing(f"the hub has no {what}, or it is private; {look}, or {log_in}") from None
        except errors.RevisionNotFoundError:
            raise self.missing(f"{what} has no revision {self.revision}; see {page}/commits") from None
        except (errors.RevisionResolutionError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
            why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
            raise self.missing(
                f"{what} is not in {constants.HF_HUB_CACHE}, or not whole, and {why}; name a folder, or fetch it where "
                f"there is a network: hf download {self.repository} --repo-type {self.kind}"
            ) from error
        except Exception as error:  # of connections and disks
            is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            why = f"{constants.HF_HUB_CACHE} is full" if is_full else str(error).partition("\n")[0]
            remedy = "make room, or set HF_HOME" if is_full else "try again, what has arrived is kept"
            raise InputError(f"{what} could not be downloaded: {why or type(error).__name__}; {remedy}") from error


def is_hub(path: str) -> bool:
    return path.startswith(SCHEME)


def uri_of_name(name: str) -> str | None:
    """URI of the model that a name such as `bert-base-uncased` or `org/name@revision` may have; None for no such name.

    >>> uri_of_name("org/name@v1"), uri_of_name("a/b/c")
    ('hf://org/name@v1', None)
    """
    return f"{SCHEME}{name}" if _NAME.fullmatch(name) and ".." not in name else None


def is_cached(uri: str) -> bool:
    """Whether the cache has something of a model at its revision; asks no network."""
    from huggingface_hub import constants

    place = HubPlace.parse(uri)
    folder = Path(constants.HF_HUB_CACHE) / f"models--{place.repository.replace('/', '--')}"
    revision = place.revision or constants.DEFAULT_REVISION
    return (folder / "refs" / revision).is_file() or (folder / "snapshots" / revision).is_dir()


def pin(uri: str) -> str:
    """The URI with the commit in the place of a branch or tag. Raises: NotFoundError, InputError."""
    return str(HubPlace.parse(uri).pinned())


def find_on_hub(pattern: str) -> list[tuple[str, int]]:
    """URIs, by their commit, and sizes of the files of a path, a folder or a pattern. Raises: NotFoundError."""
    from fsspec.utils import glob_translate

    place = HubPlace.parse(pattern).pinned()
    path = place.path.rstrip("/")
    try:
        matches = re.compile(glob_translate(path)).fullmatch
    except ValueError as error:
        raise InputError(f"{pattern}: {error}; write **/*.parquet for files of all folders") from None
    inside, sizes = f"{path}/" if path else "", _sizes(place)
    found = sorted(name for name in sizes if matches(name) or name.startswith(inside))
    return [(str(replace(place, path=name)), sizes[name]) for name in found]


def exists_on_hub(uri: str) -> bool:
    """Whether a repository has a file or folder, or one that a pattern means. Raises: NotFoundError, InputError."""
    return not HubPlace.parse(uri).path or bool(find_on_hub(uri))


def hub_files(uri: str) -> list[Path]:
    """The cache's copies of a file, or of those that a pattern means. Raises: NotFoundError, InputError."""
    places = [HubPlace.parse(file) for file, _ in find_on_hub(uri)]
    if not places:
        raise HubPlace.parse(uri).missing(f"{uri} is no file there; look at the repository's files")
    folder = places[0].fetch([place.path for place in places], show_progress=True)
    return [folder / place.path for place in places]


def open_hub(uri: str) -> IO[bytes]:
    """Open a file; several of Parquet that a pattern means are one table. Raises: NotFoundError, InputError."""
    paths = hub_files(uri)
    if len(paths) == 1:
        return paths[0].open("rb")
    if not all(path.suffix == ".parquet" for path in paths):
        raise InputError(f"{uri} means {len(paths)} files; name one, only those of Parquet are read as one table")
    from pyarrow import concat_tables, parquet

    whole = BytesIO()
    parquet.write_table(concat_tables(map(parquet.read_table, paths), promote_options="permissive"), whole)
    whole.seek(0)
    return whole


def hub_copy(uri: str, skip: Collection[str] = ()) -> Path:
    """The cache's copy of a file, or its folder of a model, with weights unless they are skipped.

    Raises: NotFoundError; InputError for weights that are too large, and for what goes wrong with the hub.
    """
    place = HubPlace.parse(uri).pinned()
    if place.path:
        return hub_files(uri)[0]
    weights = [] if WEIGHTS_FILE in skip else _weights(place)
    if missing := check_size(str(place)) if weights else 0:
        logger.info(f"downloading {size_text(missing)} of {place.repository}")
    return place.fetch([*_SMALL_FILES, *weights], show_progress=bool(weights))


def check_size(uri: str) -> int:
    """Bytes of a model's weights that are not in the cache: none for a model that was fetched by hand.

    Raises: CheckpointError for a model without weights; InputError for weights that are too large.
    """
    place = HubPlace.parse(uri).pinned()
    weights, sizes = _weights(place), _sizes(place)
    if not weights:
        raise CheckpointError(f"{place.repository} has no {' and no '.join(WEIGHT_FILES)}; name another model")
    folder = place.fetch(_SMALL_FILES)
    missing = sum(sizes[name] for name in weights if not (folder / name).exists())
    has = f"{place.repository} has {size_text(missing)} of weights to download"
    if missing > (free := shutil.disk_usage(folder).free):
        raise InputError(f"{has}, and there are {size_text(free)} free for {folder}; make room, or set HF_HOME")
    if missing > MOST_BYTES:
        raise InputError(
            f"{has}, more than the {size_text(MOST_BYTES)} that are fetched unasked; is it the model you mean? If so, "
            f"fetch it first: hf download {place.repository} --revision {place.revision}"
        )
    return missing


def _weights(place: HubPlace) -> list[str]:
    """Names of a model's weight files: the kind that is read first of those that it has."""
    sizes = _sizes(place)
    first = [name for name in WEIGHT_FILES if name in sizes][:1]
    shards: set[str] = set()
    if first and first[0].endswith(INDEX_ENDING):
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # told by whoever reads the folder
            shards = set(json.loads((place.fetch(first) / first[0]).read_bytes())["weight_map"].values())
    return [*first, *sorted(shard for shard in shards if shard in sizes)]


def _sizes(place: HubPlace) -> Mapping[str, int]:
    """Sizes of a repository's files by name, at a commit."""
    from huggingface_hub import errors, get_cached_repo_tree

    folder = place.fetch(_SMALL_FILES if place.kind == "model" else [".gitattributes"])
    try:
        tree = get_cached_repo_tree(place.repository, repo_type=place.kind, revision=place.revision)
    except errors.CachedRepoTreeNotFoundError:  # fetched by an older version of the library, and there is no network
        files = (file for file in folder.rglob("*") if file.is_file())
        return {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
    return {file.path: file.size for file in tree}

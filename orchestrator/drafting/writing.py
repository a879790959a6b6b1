"""Writing of a draft: nothing where a file is in the way, the spec last."""

from collections.abc import Sequence

from orchestrator.drafting.draft_parts import Draft
from orchestrator.errors import InputError
from orchestrator.storage import exists, write_bytes, write_chunks
from orchestrator.storage.uris import absolute


def check_targets(draft: Draft, inputs: Sequence[str], *, force: bool) -> None:
    """Check that no file is in the way. Raises: InputError, naming those that are."""
    targets = [*draft.side_files, draft.spec_path]
    originals = {absolute(path) for path in inputs}
    for target in targets:
        if absolute(target) in originals:
            raise InputError(
                f"{target} would be written over, and it is the data itself; name another spec with -o FILE"
            )
    there = [target for target in targets if exists(target)]
    if there and not force:
        verb = "is" if len(there) == 1 else "are"
        raise InputError(
            f"{', '.join(there)} {verb} there already; write over with --force, or name another spec with -o FILE"
        )


def write_draft(draft: Draft) -> list[str]:
    """Write the files beside the spec, then the spec; returns their paths."""
    for path, chunks in draft.side_files.items():
        write_chunks(path, chunks)
    write_bytes(draft.spec_path, draft.spec_text.encode())
    return [*draft.side_files, draft.spec_path]

"""Text that tells a group of runs from the others of its task: the values in which they differ."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from orchestrator.registry.groups.group_notes import recipe_text
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.groups import RANKED_KINDS
from orchestrator.registry.groups.varying_paths import varying_paths

_OWN_COLUMNS = ("recipe.init_from", "recipe.size", "data.validation_digest", "data.test_digest", "split")
"""Parameters that the leaderboard has columns of their own for."""
_NAMING = ("model", "teacher", "num_hidden_layers")
"""Parameters by which students and evaluated models are always known."""
_EXECUTION = "execution."


def recipe_texts(groups: Sequence[GroupRecord]) -> dict[int, str]:
    """Values in which each group differs from others of its task and kind, by the `id` of its record.

    Groups of before all that tells groups apart was recorded have the beginnings of their digests, too.
    """
    by_kind: dict[tuple[str, str], list[GroupRecord]] = defaultdict(list)
    for group in groups:
        by_kind[group.task, group.kind if group.kind in RANKED_KINDS else ""].append(group)
    return {one: text for (_, kind), of_kind in by_kind.items() for one, text in _texts(kind, of_kind).items()}


def _texts(kind: str, groups: Sequence[GroupRecord]) -> dict[int, str]:
    """Texts of all groups of one kind; "" are trials, whatever their sweep was."""
    varying = varying_paths([group.parameters for group in groups])
    naming = _NAMING if kind else ()
    paths = sorted(path for path in {*varying, *naming} - {*_OWN_COLUMNS} if not path.startswith(_EXECUTION))
    own = [path for path in _OWN_COLUMNS if path in varying]
    shows_code = len({group.code_version for group in groups}) > 1
    texts, rows = {}, {}
    for group in groups:
        told = {path: group.parameters[path] for path in paths if path in group.parameters}
        if shows_code and group.code_version is not None:
            told["code"] = group.code_version
        texts[id(group)] = text = recipe_text(told)
        columns = tuple([repr(group.parameters.get(path)) for path in own])
        rows[id(group)] = (group.metric, group.split, group.data, text, columns)
    num_alike = Counter(rows.values())
    for group in groups:
        if num_alike[rows[id(group)]] > 1:
            texts[id(group)] = f"{texts[id(group)]} group={group.label}".lstrip()
    return texts

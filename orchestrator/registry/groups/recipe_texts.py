"""Text that tells a group of runs from the others of its task: the values in which they differ."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain

from orchestrator.registry.groups.group_notes import recipe_text
from orchestrator.registry.groups.group_settings import setting_value
from orchestrator.registry.groups.split_data import taken_path
from orchestrator.registry.groups.standings import TRIAL, Standing
from orchestrator.registry.groups.varying_paths import hashable, paths_with_several_values

_OWN_COLUMNS = ("recipe.init_from", "recipe.size", taken_path("validation"), taken_path("test"), "split")
"""Parameters that the leaderboard has columns of their own for."""
_NAMING = ("model", "teacher", "num_hidden_layers")
"""Parameters by which students and evaluated models are always known."""
_EXECUTION = "execution."
_CODE = "code"


def recipe_texts(groups: Sequence[Standing]) -> dict[int, str]:
    """Values in which each group differs from others of its task and kind, by the `id` of its standing."""
    by_kind: dict[tuple[str, str], list[Standing]] = defaultdict(list)
    for group in groups:
        by_kind[group.task, group.kind].append(group)
    return {one: text for (_, kind), of_kind in by_kind.items() for one, text in _texts(kind, of_kind).items()}


def _texts(kind: str, groups: Sequence[Standing]) -> dict[int, str]:
    """Texts of all groups of one kind."""
    num_having = Counter(chain.from_iterable(group.settings.items() for group in groups))
    values = {(path, stored): setting_value(stored) for path, stored in num_having}
    same = Counter[tuple[str, object]]()
    for (path, stored), value in values.items():
        same[path, hashable(value)] += num_having[path, stored]
    varying = paths_with_several_values(same, len(groups))
    naming = () if kind == TRIAL else _NAMING
    paths = sorted(path for path in {*varying, *naming} - {*_OWN_COLUMNS} if not path.startswith(_EXECUTION))
    own, shown = [path for path in _OWN_COLUMNS if path in varying], set(paths)
    told = {(path, stored): recipe_text({path: value}) for (path, stored), value in values.items() if path in shown}
    shows_code = len({group.code_version for group in groups}) > 1
    texts, rows = {}, {}
    for group in groups:
        settings = [(path, group.settings[path]) for path in paths if path in group.settings]
        words = [told[setting] for setting in settings if setting in told]
        if shows_code and group.code_version is not None:
            words.append(recipe_text({_CODE: group.code_version}))
        texts[id(group)] = text = " ".join(words)
        columns = tuple([repr(values.get((path, group.settings.get(path, "")))) for path in own])
        rows[id(group)] = (group.metric, group.split, group.data, text, columns)
    num_alike = Counter(rows.values())
    for group in groups:
        if num_alike[rows[id(group)]] > 1:
            texts[id(group)] = f"{texts[id(group)]} group={group.label}".lstrip()
    return texts

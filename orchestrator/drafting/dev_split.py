"""Choice of the examples that are kept for validation where a person has no file of them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping

from orchestrator.drafting.labeled_facts import SplitFacts
from orchestrator.errors import InputError

_SHARE = 0.1
_SHARE_OF_FEW = 0.2
_FEW = 1000
_MOST = 5000
"""Examples for validation at most: more cost time and tell little more."""


def choose_validation(facts: SplitFacts, seed: int) -> frozenset[int]:
    """Keys of the groups that are for validation: a share of each label's, by a hash of seed and text.

    So the choice depends neither on the order of the rows nor on rows of other labels, and copies stay together. A
    label with one group stays in training. Raises: InputError where nothing can be kept.
    """
    num_examples = len(facts.row_groups)
    share = _SHARE_OF_FEW if num_examples < _FEW else min(_SHARE, _MOST / num_examples)
    sizes = Counter(facts.row_groups)
    names, strata = facts.strata, defaultdict[str, list[int]](list)
    for key, labels in facts.groups.items():
        strata[names[labels]].append(key)
    chosen: set[int] = set()
    for keys in strata.values():
        chosen.update(_first_groups(sorted(keys, key=lambda key: _place(key, seed)), sizes, share))
    if not chosen:
        raise InputError(
            f"{facts.path}: nothing can be kept for validation, as each label stands beside one text only; add rows, "
            "or give a second file with dev in its name"
        )
    return frozenset(chosen)


def _first_groups(keys: list[int], sizes: Mapping[int, int], share: float) -> list[int]:
    """The first groups that have the share of all examples; at least one is taken and one left, where there are two."""
    if len(keys) < 2:
        return []
    wanted = max(1, round(share * sum(sizes[key] for key in keys)))
    taken: list[int] = []
    for key in keys[:-1]:
        if wanted <= 0:
            break
        taken.append(key)
        wanted -= sizes[key]
    return taken


def _place(key: int, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest()

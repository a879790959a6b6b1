"""Sizes by name: the 24 of Turc et al. (2019, "Well-Read Students Learn Better"), and large (Devlin et al. 2018)."""

import difflib

from bert_core.errors import ConfigError

_NAMES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

SIZES: dict[str, tuple[int, int]] = {
    **_NAMES,
    **{f"{depth}x{width}": (depth, width) for depth in range(2, 13, 2) for width in (128, 256, 512, 768)},
}
"""Number of layers and width of each size: tiny, mini, small, medium, base, large, or layers × width as in `8x256`."""


def shape_of(size: str) -> tuple[int, int]:
    """Look up the number of layers and the width of a size. Raises: ConfigError, with the nearest name.

    >>> shape_of("mini")
    (4, 256)
    """
    if size not in SIZES:
        near = difflib.get_close_matches(size, SIZES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"size {size!r} is not known; {hint}there are {', '.join(_NAMES)}, and layers × width from 2x128 to 12x768"
        )
    return SIZES[size]

"""BIO tags: `B-type` begins an entity, `I-type` goes on, `O` is outside."""

from collections.abc import Collection, Sequence


def to_bio(tags: Sequence[str]) -> tuple[str, ...]:
    """A sentence's tags with every entity begun by `B-`; BIO stays as it is.

    In IOB1 (CoNLL-2003) `B-` stands only between two entities of one type, all others begin with `I-`.
    """
    bio: list[str] = []
    previous = "O"
    for tag in tags:
        bio.append(f"B-{tag[2:]}" if tag.startswith("I-") and previous[2:] != tag[2:] else tag)
        previous = tag
    return tuple(bio)


def find_bad_tag(tags: Sequence[str], known: Collection[str] | None) -> str | None:
    """Say what is wrong with the first bad tag: not BIO, or outside the tag set; None when all are good."""
    for tag in tags:
        if known is not None and tag not in known:
            return f"tag {tag!r} is none of the labels {', '.join(known)}"
        if not is_bio(tag):
            return f"tag {tag!r} is not O, B-type or I-type"
    return None


def is_bio(tag: str) -> bool:
    """Whether `tag` is `O`, `B-type` or `I-type`."""
    return tag == "O" or (tag[:2] in ("B-", "I-") and len(tag) > 2)


def complete_tag_set(tags: Collection[str]) -> tuple[str, ...]:
    """The tag set of all types that occur, types sorted."""
    return tag_set(*sorted({tag[2:] for tag in tags if tag != "O"}))


def tag_set(*types: str) -> tuple[str, ...]:
    """`O`, then `B-` and `I-` of every type."""
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))

"""Compressions that a file of text or of labeled data may have: the ending of its name says which."""

COMPRESSIONS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}
"""Endings of compressed files, and the bytes that such a file begins with."""


def compression_problem(path: str, head: bytes) -> str | None:
    """Say how a file's first bytes differ from what its ending says, and the remedy; None: they do not.

    >>> compression_problem("a.csv", b"\\x1f\\x8b.."), compression_problem("a.txt.gz", b"text")
    ('holds gz data; rename it to a.csv.gz', 'is not compressed; rename it to a.txt')
    """
    packed = next((ending for ending, magic in COMPRESSIONS.items() if head.startswith(magic)), "")
    named = next((ending for ending in COMPRESSIONS if path.lower().endswith(ending)), "")
    if packed == named:
        return None
    what = f"holds {packed[1:]} data" if packed else "is not compressed"
    return f"{what}; rename it to {path[: len(path) - len(named)]}{packed}"

"""Compressions that a file of text or of labeled data may have: the ending of its name says which."""

COMPRESSIONS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}
"""Endings of compressed files, and the bytes that such a file begins with."""

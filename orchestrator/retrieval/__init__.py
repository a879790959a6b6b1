"""Texts as vectors, and documents found by them: embedding, searching, scoring the first hits again."""

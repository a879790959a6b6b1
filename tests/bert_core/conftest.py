"""Fixtures for the tests beside this file."""

from tests.real_weights import minilm_folder

__all__ = ["minilm_folder"]

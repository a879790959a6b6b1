"""Search for the nearest of many vectors: exact, or approximate with the extra `search`. No torch."""

from bert_core.vector_index.index import Hit, VectorIndex
from bert_core.vector_index.index_folder import build_index, load_index, save_index

__all__ = ["Hit", "VectorIndex", "build_index", "load_index", "save_index"]

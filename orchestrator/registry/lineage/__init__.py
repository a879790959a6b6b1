"""Lineage: what was made of what, as edges between digests, drawn as trees, with what is stale."""

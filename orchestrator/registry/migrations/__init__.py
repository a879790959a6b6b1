"""Alembic scripts, oldest first; `orchestrator.registry.revisions` runs them."""

"""Alembic scripts, oldest first; `orchestrator.registry.schema` runs them."""

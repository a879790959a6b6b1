"""Claims on removed runs, tokenizers of token stores, and tags of pipelines for their stages.

A garbage collection claims a removed run, which nobody restores any more, before it deletes its files.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_INHERITED = (
    "shared.tag NOT LIKE 'pipeline:%' AND shared.tag NOT LIKE 'inputs:%' AND shared.tag NOT LIKE 'pulled:%' "
    "AND shared.tag NOT LIKE 'reproduces:%' "
    "AND NOT EXISTS (SELECT 1 FROM tags AS own WHERE own.run_id = heir.{id} AND own.tag = shared.tag)"
)


def upgrade() -> None:
    """Add the columns; give the stages of before, and their trials, the tags of their pipelines, as later ones have."""
    op.add_column("trash", sa.Column("claimed_at", sa.DateTime(), nullable=True))
    op.add_column("datasets", sa.Column("tokenizer_digest", sa.Text(), nullable=True))
    op.execute(
        "INSERT INTO tags (run_id, tag) SELECT DISTINCT heir.run_id, shared.tag FROM tags AS shared "
        "JOIN tags AS heir ON heir.tag = 'pipeline:' || shared.run_id WHERE " + _INHERITED.format(id="run_id")
    )
    op.execute(
        "INSERT INTO tags (run_id, tag) SELECT heir.id, shared.tag FROM runs AS heir "
        "JOIN tags AS shared ON shared.run_id = heir.parent_id WHERE " + _INHERITED.format(id="id")
    )

"""Claims of garbage collections on removed runs, which nobody restores any more."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column; no run of before is claimed."""
    op.add_column("trash", sa.Column("claimed_at", sa.DateTime(), nullable=True))

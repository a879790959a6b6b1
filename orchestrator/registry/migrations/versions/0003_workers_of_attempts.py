"""The training workers of an attempt: which hosts they were on, from which step."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; where the workers of before were is not known."""
    op.add_column("attempts", sa.Column("workers", sa.Text(), nullable=True))

"""The job of an attempt: what a cluster's dashboard calls it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; attempts of before have no job."""
    op.add_column("attempts", sa.Column("job_id", sa.Text(), nullable=True))

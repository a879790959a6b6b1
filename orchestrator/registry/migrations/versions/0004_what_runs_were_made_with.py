"""The code, command and machine of each attempt, the code of each run in one word, and edges of lineage."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add tables and columns; with what code, and where, the runs of before were made is not known."""
    op.create_table(
        "code_diffs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("diff", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "lineage",
        sa.Column("child", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("child_kind", sa.Text(), nullable=False),
        sa.Column("child_name", sa.Text(), nullable=False),
        sa.Column("parent_kind", sa.Text(), nullable=False),
        sa.Column("parent_name", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("child", "parent", "role"),
    )
    op.create_index("ix_lineage_parent", "lineage", ["parent"], unique=False)
    op.create_index("ix_lineage_run_id", "lineage", ["run_id"], unique=False)
    op.add_column("runs", sa.Column("code_version", sa.Text(), nullable=True))
    op.create_index("ix_runs_code_version", "runs", ["code_version"], unique=False)
    op.add_column("attempts", sa.Column("code", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("diff_digest", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("command", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("overrides", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("environment", sa.Text(), nullable=True))
    _let_trials_inherit()


def _let_trials_inherit() -> None:
    """Give the trials of before the host, the tags and the data of their sweeps, as later ones have them."""
    op.execute(
        "UPDATE runs SET host = (SELECT sweep.host FROM runs AS sweep WHERE sweep.id = runs.parent_id) "
        "WHERE parent_id IS NOT NULL AND host IS NULL"
    )
    op.execute(
        "INSERT INTO tags (run_id, tag) SELECT trial.id, tags.tag FROM runs AS trial "
        "JOIN tags ON tags.run_id = trial.parent_id WHERE tags.tag NOT LIKE 'pipeline:%' "
        "AND tags.tag NOT LIKE 'inputs:%' AND tags.tag NOT LIKE 'pulled:%' "
        "AND NOT EXISTS (SELECT 1 FROM tags AS own WHERE own.run_id = trial.id AND own.tag = tags.tag)"
    )
    op.execute(
        "INSERT INTO run_datasets (run_id, fingerprint) SELECT trial.id, link.fingerprint FROM runs AS trial "
        "JOIN run_datasets AS link ON link.run_id = trial.parent_id WHERE NOT EXISTS "
        "(SELECT 1 FROM run_datasets AS own WHERE own.run_id = trial.id AND own.fingerprint = link.fingerprint)"
    )

"""Baseline, which later scripts follow: an empty database gets its tables from the metadata, at the newest revision."""

revision = "0014"
down_revision = None


def upgrade() -> None:
    """Do nothing: no database is without a revision and has tables."""

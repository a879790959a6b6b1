"""Numbers of models' versions that were given away, with the weights that each means: none is given twice.

Those of before are the models that are registered or in the trash, and what the lineage remembers of others.
"""

import json
from collections.abc import Iterator

import sqlalchemy as sa
import zstandard
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table, and note the numbers that were given before."""
    made = op.create_table(
        "model_versions",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version"),
    )
    connection = op.get_bind()
    given: dict[tuple[str, int], str] = {}
    for name, version, digest in (*_registered(connection), *_in_trash(connection), *_in_lineage(connection)):
        given.setdefault((name, version), digest)
    rows = [{"name": name, "version": version, "digest": digest} for (name, version), digest in given.items()]
    op.bulk_insert(made, rows)


def _registered(connection: sa.Connection) -> Iterator[tuple[str, int, str]]:
    for row in connection.execute(sa.text("SELECT name, version, digest FROM models")):
        yield row.name, row.version, row.digest


def _in_trash(connection: sa.Connection) -> Iterator[tuple[str, int, str]]:
    """Models in the records of removed runs, which are lines of the portable form."""
    for (record,) in connection.execute(sa.text("SELECT record FROM trash")):
        lines = zstandard.ZstdDecompressor().decompressobj().decompress(bytes(record)).splitlines()
        table, columns = "", []
        for line in map(json.loads, lines):
            if isinstance(line, dict):
                table, columns = line.get("table", ""), line.get("columns", [])
            elif table == "models":
                row = dict(zip(columns, line, strict=True))
                yield row["name"], row["version"], row["digest"]


def _in_lineage(connection: sa.Connection) -> Iterator[tuple[str, int, str]]:
    """Models that edges name, the newest edge first; a model that was not registered is named by its folder."""
    for ends in (
        "SELECT child_name, child FROM lineage WHERE child_kind = 'model' ORDER BY recorded_at DESC",
        "SELECT parent_name, parent FROM lineage WHERE parent_kind = 'model' ORDER BY recorded_at DESC",
    ):
        for label, digest in connection.execute(sa.text(ends)):
            name, _, version = label.rpartition("@")
            if name and version.isdecimal() and len(version) < 10:
                yield name, int(version), digest

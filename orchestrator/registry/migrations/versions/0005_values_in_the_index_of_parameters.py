"""Numbers in the indexes of parameters: a comparison with a number, and a sort by one, reads the index alone."""

from alembic import op

revision = "0005"
down_revision = "0004"

_INDEXES = {"ix_parameters_leaf": "leaf", "ix_parameters_path": "path"}


def upgrade() -> None:
    """Make both indexes anew, with two columns more."""
    for index, name in _INDEXES.items():
        op.drop_index(index, "parameters")
        op.create_index(index, "parameters", [name, "run_id", "kind", "number"], unique=False)

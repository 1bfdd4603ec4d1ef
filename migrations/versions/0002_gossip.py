"""Gossip: peers that contributed to a decision, letters, this city's place in the mesh, addresses, keys."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("told_by", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "letters",
        sa.Column("origin", sa.String(100), primary_key=True),
        sa.Column("letter", sa.LargeBinary, nullable=False),
        sa.Column("received_at", sa.Double, nullable=False),
    )
    op.create_table(
        "mesh",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("seed", sa.LargeBinary, nullable=False),
        sa.Column("memory", sa.Text, nullable=False),
    )
    op.create_table(
        "peers",
        sa.Column("address", sa.String(300), primary_key=True),
        sa.Column("since", sa.Double, nullable=False),
    )
    op.create_table(
        "trusted",
        sa.Column("origin", sa.String(100), primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "dropped",
        sa.Column("origin", sa.String(100), primary_key=True),
        sa.Column("since", sa.Double, nullable=False),
    )


def downgrade() -> None:
    for table in ("dropped", "trusted", "peers", "mesh", "letters"):
        op.drop_table(table)
    op.drop_column("decisions", "told_by")

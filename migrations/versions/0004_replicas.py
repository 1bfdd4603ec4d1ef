"""Replicas: the row by which they agree on the next version, and hear that something changed; and which older
software can use a database, so that two versions can serve side by side during an upgrade."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shared_log",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("changes", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "compatibility",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("oldest_revision", sa.String(40), nullable=False),
    )
    op.execute("INSERT INTO compatibility (id, oldest_revision) VALUES (1, '0004')")
    op.execute("INSERT INTO shared_log (id, version, changes) VALUES (1, 0, 0)")


def downgrade() -> None:
    op.drop_table("compatibility")
    op.drop_table("shared_log")

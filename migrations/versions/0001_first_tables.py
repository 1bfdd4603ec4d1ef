"""The first tables: decisions, feedback, the learner's snapshot, the city, its controls."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "decisions",
        sa.Column("number", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("subject", sa.String(200)),
        sa.Column("arm", sa.Integer, nullable=False),
        sa.Column("price", sa.Double, nullable=False),
        sa.Column("vectors", sa.LargeBinary, nullable=False),
        sa.Column("limited_by", sa.Text, nullable=False),
        sa.Column("policy", sa.String(40), nullable=False),
        sa.Column("learner_version", sa.BigInteger, nullable=False),
    )
    op.create_index("decisions_id", "decisions", ["id"], unique=True)
    op.create_index("decisions_made_at", "decisions", ["made_at"])
    named = sa.text("subject IS NOT NULL")
    op.create_index(
        "decisions_subject", "decisions", ["subject", "number"], sqlite_where=named, postgresql_where=named
    )
    op.create_table(
        "feedback",
        sa.Column("number", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("decision", sa.BigInteger, sa.ForeignKey("decisions.number"), nullable=False),
        sa.Column("reward", sa.Double, nullable=False),
        sa.Column("received_at", sa.Double, nullable=False),
        sa.Column("by_default", sa.Boolean, nullable=False),
        sa.Column("version", sa.BigInteger),
    )
    op.create_index("feedback_decision", "feedback", ["decision"], unique=True)
    op.create_index("feedback_version", "feedback", ["version"], unique=True)
    op.create_table(
        "learner",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("tallies", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "city",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("settled_through", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "controls",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )


def downgrade() -> None:
    for table in ("controls", "city", "learner", "feedback", "decisions"):
        op.drop_table(table)

"""Sums of sales by quarter of an hour and by day, which follow the rows of decisions and feedback; and the
acts of operators, as far as other tables tell of earlier ones.

Everything is added. Older software does not know of the sums: they are brought up to date by the next process
of this version, from the rows.
"""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
NEW_TABLES = ("sales_quarters", "sales_days", "sales_progress", "sales_retracted", "acts")
EARLIER_ACTS = """
INSERT INTO acts (at, kind, made_by, reason, detail)
SELECT at, kind, made_by, reason, detail FROM (
  SELECT made_at AS at, 'retract' AS kind, made_by, reason,
    '{"retraction": ' || id || ', "feedback": ' || feedback_count || '}' AS detail FROM retractions
  UNION ALL
  SELECT lifted_at, 'lift retraction', lifted_by, lift_reason, '{"retraction": ' || id || '}'
    FROM retractions WHERE lifted_at IS NOT NULL
  UNION ALL
  SELECT finished_at, 'import', 'operator', '', '{"import": ' || id || ', "rows": ' || row_count || '}'
    FROM imports WHERE finished_at IS NOT NULL
  UNION ALL
  SELECT since, 'reshape', 'operator', '', '{"terms": ' || id || '}' FROM terms WHERE id > 1
) AS earlier ORDER BY at
"""


def upgrade() -> None:
    for name in ("sales_quarters", "sales_days"):
        op.create_table(name, *_sums())
    op.create_table(
        "sales_progress",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("decision", sa.BigInteger, nullable=False),
        sa.Column("feedback", sa.BigInteger, nullable=False),
        sa.Column("rewrites", sa.BigInteger, nullable=False),
        sa.Column("time_zone", sa.String(100), nullable=False),
    )
    op.create_table(
        "sales_retracted",
        sa.Column("feedback", sa.BigInteger, primary_key=True, autoincrement=False),
    )
    op.create_table(
        "acts",
        sa.Column("number", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("made_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("acts_at", "acts", ["at"])
    op.execute(
        "INSERT INTO sales_progress (id, decision, feedback, rewrites, time_zone) VALUES (1, 0, 0, 0, 'UTC')"
    )
    op.execute(EARLIER_ACTS)


def _sums() -> list[sa.Column[object]]:
    return [
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("arm_price", sa.Double, primary_key=True, autoincrement=False),
        sa.Column("decisions", sa.BigInteger, nullable=False),
        sa.Column("price_total", sa.Double, nullable=False),
        sa.Column("lowest_price", sa.Double),
        sa.Column("answered", sa.BigInteger, nullable=False),
        sa.Column("defaults", sa.BigInteger, nullable=False),
        sa.Column("bought", sa.BigInteger, nullable=False),
        sa.Column("sold", sa.Double, nullable=False),
        sa.Column("revenue", sa.Double, nullable=False),
        sa.Column("reward", sa.Double, nullable=False),
        sa.Column("retracted", sa.BigInteger, nullable=False),
    ]


def _check_nothing_was_pruned() -> None:
    if op.get_bind().execute(sa.text("SELECT id FROM base")).first() is not None:
        raise CommandError(
            "old rows of this city were pruned, and an earlier schema has no place for what they taught and "
            "sold: restore a backup from before `pricemesh prune`"
        )


def downgrade() -> None:
    _check_nothing_was_pruned()
    for table in reversed(NEW_TABLES):
        op.drop_table(table)

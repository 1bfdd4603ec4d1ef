"""What a city needs to live for years: rows that name the terms they were made under, imports, retractions,
and the base that old rows leave behind when they are pruned.

Everything is added and may stay empty, so older software can use the tables until one of these is used for
the first time; that raises `compatibility.oldest_revision`.
"""

import json

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
NEW_TABLES = ("terms", "imports", "import_rows", "retractions", "retracted", "base")


def upgrade() -> None:
    op.add_column("decisions", sa.Column("terms", sa.Integer))
    op.add_column("decisions", sa.Column("import_id", sa.Integer))
    op.add_column("feedback", sa.Column("key", sa.String(100)))
    op.add_column("city", sa.Column("terms", sa.Integer, nullable=False, server_default="1"))
    op.add_column("city", sa.Column("rewrites", sa.BigInteger, nullable=False, server_default="0"))
    _create_terms()
    _create_imports()
    _create_retractions()
    op.create_table(
        "base",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("tallies", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.execute(
        "INSERT INTO terms (id, description, change, since) SELECT 1, description, '{}', 0.0 FROM city"
    )


def _create_terms() -> None:
    op.create_table(
        "terms",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )


def _create_imports() -> None:
    op.create_table(
        "imports",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("row_count", sa.BigInteger, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
    )
    op.create_table(
        "import_rows",
        sa.Column("number", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("import_id", sa.Integer, nullable=False),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("arm", sa.Integer, nullable=False),
        sa.Column("price", sa.Double, nullable=False),
        sa.Column("vectors", sa.LargeBinary, nullable=False),
        sa.Column("propensity", sa.Double, nullable=False),
        sa.Column("reward", sa.Double, nullable=False),
        sa.Column("sold", sa.Double),
        sa.Column("chance", sa.Double),
        sa.Column("version", sa.Double),
    )
    op.create_index("import_rows_id", "import_rows", ["id"], unique=True)
    is_imported = sa.text("import_id IS NOT NULL")
    op.create_index(
        "decisions_import_id",
        "decisions",
        ["import_id", "number"],
        sqlite_where=is_imported,
        postgresql_where=is_imported,
    )


def _create_retractions() -> None:
    op.create_table(
        "retractions",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("made_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("selection", sa.Text, nullable=False),
        sa.Column("feedback_count", sa.BigInteger, nullable=False),
        sa.Column("lifted_at", sa.Double),
        sa.Column("lifted_by", sa.String(200)),
        sa.Column("lift_reason", sa.Text),
    )
    op.create_table(
        "retracted",
        sa.Column("feedback", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("retraction", sa.Integer, primary_key=True, autoincrement=False),
    )


def _forget_bounds() -> None:
    city = sa.table("city", sa.column("id", sa.Integer), sa.column("description", sa.Text))
    for id_, text in op.get_bind().execute(sa.select(city.c.id, city.c.description)).all():
        description = {key: value for key, value in json.loads(text).items() if key != "bounds"}
        op.execute(city.update().where(city.c.id == id_).values(description=json.dumps(description)))


def _check_nothing_was_pruned() -> None:
    if op.get_bind().execute(sa.text("SELECT id FROM base")).first() is not None:
        raise CommandError(
            "old rows of this city were pruned, and an earlier schema has no place for what they taught: "
            "restore a backup from before `pricemesh prune`"
        )


def downgrade() -> None:
    _check_nothing_was_pruned()
    _forget_bounds()
    for table in reversed(NEW_TABLES):
        op.drop_table(table)
    with op.batch_alter_table("city") as city:
        city.drop_column("rewrites")
        city.drop_column("terms")
    op.drop_column("feedback", "key")
    op.drop_index("decisions_import_id", "decisions")
    op.drop_column("decisions", "import_id")
    op.drop_column("decisions", "terms")

"""What a reward is: units sold beside it, and with each decision its propensity and the chance of a sale.

Databases made before are of cities of values. Going down keeps every reward and loses the units sold.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CITY = sa.table("city", sa.column("id", sa.Integer), sa.column("description", sa.Text))


def upgrade() -> None:
    op.add_column("decisions", sa.Column("propensity", sa.Double, nullable=False, server_default="1.0"))
    op.add_column("decisions", sa.Column("chance", sa.Double))
    op.add_column("feedback", sa.Column("sold", sa.Double))
    for id_, description in _descriptions():
        _describe(id_, description | {"reward": {"kind": "value"}})


def downgrade() -> None:
    for id_, description in _descriptions():
        _describe(id_, {key: value for key, value in description.items() if key != "reward"})
    op.drop_column("feedback", "sold")
    op.drop_column("decisions", "chance")
    op.drop_column("decisions", "propensity")


def _descriptions() -> list[tuple[int, dict[str, Any]]]:
    rows = op.get_bind().execute(sa.select(CITY.c.id, CITY.c.description)).all()
    return [(id_, json.loads(text)) for id_, text in rows]


def _describe(id_: int, description: dict[str, Any]) -> None:
    op.execute(sa.update(CITY).where(CITY.c.id == id_).values(description=json.dumps(description)))

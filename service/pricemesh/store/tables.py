"""The tables. Migrations in `migrations/` create them; a test checks that both agree.

Rows of decisions and feedback are inserted and never changed; only `pricemesh prune` deletes them, and only
`pricemesh forget` removes a subject. `learner` has one snapshot, so that a start need not learn all feedback
again. A learner is a function of `base` and of the rows that are not retracted; `city.rewrites` counts how
often that past was changed.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()
Serial = BigInteger().with_variant(Integer, "sqlite")

decisions = Table(
    "decisions",
    metadata,
    Column("number", Serial, primary_key=True, autoincrement=True),
    Column("id", String(128), nullable=False),
    Column("made_at", Double, nullable=False),
    Column("subject", String(200)),
    Column("arm", Integer, nullable=False),
    Column("price", Double, nullable=False),
    Column("vectors", LargeBinary, nullable=False),  # layout: `core.decision`
    Column("limited_by", Text, nullable=False),
    Column("policy", String(40), nullable=False),
    Column("learner_version", BigInteger, nullable=False),
    Column("told_by", Text, nullable=False, server_default=""),  # peers in `vectors`, by comma
    Column("propensity", Double, nullable=False, server_default="1.0"),
    Column("chance", Double),  # of a sale at the chosen arm, as predicted then; null without such a model
    Column("terms", Integer),  # the arms and features it was made under; null is 1
    Column("import_id", Integer),  # of the import that brought it; null for a decision of this service
    Index("decisions_id", "id", unique=True),
    Index("decisions_made_at", "made_at"),
    Index(
        "decisions_subject",
        "subject",
        "number",
        sqlite_where=text("subject IS NOT NULL"),
        postgresql_where=text("subject IS NOT NULL"),
    ),
    Index(
        "decisions_import_id",
        "import_id",
        "number",
        sqlite_where=text("import_id IS NOT NULL"),
        postgresql_where=text("import_id IS NOT NULL"),
    ),
)

feedback = Table(
    "feedback",
    metadata,
    Column("number", Serial, primary_key=True, autoincrement=True),
    Column("decision", BigInteger, ForeignKey("decisions.number"), nullable=False),
    Column("reward", Double, nullable=False),
    Column("received_at", Double, nullable=False),
    Column("by_default", Boolean, nullable=False),
    Column("version", BigInteger),  # the learner's version with it; null when learning was frozen
    Column("sold", Double),  # units; null in a city of values
    Column("key", String(100)),  # of the API that sent it; null without keys
    Index("feedback_decision", "decision", unique=True),
    Index("feedback_version", "version", unique=True),
)

learner = Table(
    "learner",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("tallies", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)

city = Table(
    "city",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(100), nullable=False),
    Column("description", Text, nullable=False),
    Column("settled_through", BigInteger, nullable=False),
    Column("terms", Integer, nullable=False, server_default="1"),  # in force
    Column("rewrites", BigInteger, nullable=False, server_default="0"),  # of what the learner learns from
)

terms = Table(  # the arms and features that the city has had, oldest first
    "terms",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("description", Text, nullable=False),  # as JSON
    Column("change", Text, nullable=False),  # how rows of the terms before are read in these, as JSON
    Column("since", Double, nullable=False),
)

imports = Table(
    "imports",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(200), nullable=False, unique=True),
    Column("source", Text, nullable=False),
    Column("digest", String(64), nullable=False),  # of the file
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double),  # null: its rows are in import_rows, and do not count yet
    Column("row_count", BigInteger, nullable=False),
    Column("progress", Text, nullable=False),  # how far the file was read, as JSON
)

import_rows = Table(  # of an import that has not finished
    "import_rows",
    metadata,
    Column("number", Serial, primary_key=True, autoincrement=True),
    Column("import_id", Integer, nullable=False),
    Column("id", String(128), nullable=False),
    Column("made_at", Double, nullable=False),
    Column("arm", Integer, nullable=False),
    Column("price", Double, nullable=False),
    Column("vectors", LargeBinary, nullable=False),
    Column("propensity", Double, nullable=False),
    Column("reward", Double, nullable=False),
    Column("sold", Double),
    Column("chance", Double),
    Column("version", Double),  # in the city that exported the row: rows are learned in this order
    Index("import_rows_id", "id", unique=True),
)

retractions = Table(
    "retractions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("made_at", Double, nullable=False),
    Column("made_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("selection", Text, nullable=False),  # as JSON
    Column("feedback_count", BigInteger, nullable=False),
    Column("lifted_at", Double),
    Column("lifted_by", String(200)),
    Column("lift_reason", Text),
)

retracted = Table(  # feedback that does not count, by its number; without those of lifted retractions
    "retracted",
    metadata,
    Column("feedback", BigInteger, primary_key=True, autoincrement=False),
    Column("retraction", Integer, primary_key=True, autoincrement=False),
)

base = Table(  # at most one row: what pruned feedback taught, in the form of a snapshot
    "base",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("tallies", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)


def _sums_of_sales(name: str) -> Table:
    """Rollups of decisions by when they were made and by the price of their arm."""
    return Table(
        name,
        metadata,
        Column("start", BigInteger, primary_key=True, autoincrement=False),  # Unix seconds
        Column("arm_price", Double, primary_key=True, autoincrement=False),  # -1: the price was no arm's
        Column("decisions", BigInteger, nullable=False),
        Column("price_total", Double, nullable=False),  # of the decisions
        Column("lowest_price", Double),  # null until a decision was counted
        Column("answered", BigInteger, nullable=False),  # feedback of callers
        Column("defaults", BigInteger, nullable=False),  # feedback given when a window closed
        Column("bought", BigInteger, nullable=False),  # feedback that sold anything
        Column("sold", Double, nullable=False),  # units
        Column("revenue", Double, nullable=False),  # price * units
        Column("reward", Double, nullable=False),
        Column("retracted", BigInteger, nullable=False),  # feedback that is in none of these sums any more
    )


sales_quarters = _sums_of_sales("sales_quarters")  # a quarter of an hour each: every zone's hours are made of
sales_days = _sums_of_sales("sales_days")  # days of `sales_progress.time_zone`

sales_progress = Table(  # one row: which rows the sums of sales hold
    "sales_progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("decision", BigInteger, nullable=False),  # all up to this number
    Column("feedback", BigInteger, nullable=False),
    Column("rewrites", BigInteger, nullable=False),  # `city.rewrites` up to which retractions are subtracted
    Column("time_zone", String(100), nullable=False),
)

sales_retracted = Table(  # feedback that the sums of sales do not hold, because it is retracted
    "sales_retracted",
    metadata,
    Column("feedback", BigInteger, primary_key=True, autoincrement=False),
)

acts = Table(  # what operators did, the newest ones
    "acts",
    metadata,
    Column("number", Serial, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("made_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),  # as JSON
    Index("acts_at", "at"),
)

shared_log = Table(  # one row, which replicas lock to write in one order; other cities do not use it
    "shared_log",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),  # of the newest feedback; since the first replica's start
    Column("changes", BigInteger, nullable=False),  # of anything but decisions, feedback and snapshots
)

compatibility = Table(  # one row
    "compatibility",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    # Software made for this revision, or for a later one, can use the tables as they are.
    Column("oldest_revision", String(40), nullable=False),
)

controls = Table(
    "controls",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
    Column("since", Double, nullable=False),
)

letters = Table(
    "letters",
    metadata,
    Column("origin", String(100), primary_key=True),
    Column("letter", LargeBinary, nullable=False),
    Column("received_at", Double, nullable=False),
)

mesh = Table(
    "mesh",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seed", LargeBinary, nullable=False),  # of the key pair that seals letters
    Column("memory", Text, nullable=False),  # the learner's state that only ticks change
)

peers = Table(
    "peers",
    metadata,
    Column("address", String(300), primary_key=True),
    Column("since", Double, nullable=False),
)

trusted = Table(
    "trusted",
    metadata,
    Column("origin", String(100), primary_key=True),
    Column("key", LargeBinary, nullable=False),
)

dropped = Table(
    "dropped",
    metadata,
    Column("origin", String(100), primary_key=True),
    Column("since", Double, nullable=False),
)

"""Whether the sums of sales, with the rows that they do not hold yet, equal the sums over all rows."""

from sqlite3 import Connection

from pricemesh.lab.torture.ledger import Violated

TOLERANCE = 1e-6
TABLES = ("sales_quarters", "sales_days")
# Zero each: decisions, feedback (also what is retracted), rewards.
_DIFFERENCES = """
SELECT (SELECT coalesce(sum(decisions), 0) FROM {table})
    - (SELECT count(*) FROM decisions WHERE number <= sales_progress.decision),
  (SELECT coalesce(sum(answered + defaults + retracted), 0) FROM {table})
    - (SELECT count(*) FROM feedback WHERE number <= sales_progress.feedback),
  (SELECT coalesce(sum(reward), 0.0) FROM {table})
    - (SELECT coalesce(sum(reward), 0.0) FROM feedback WHERE number <= sales_progress.feedback)
    + (SELECT coalesce(sum(reward), 0.0) FROM feedback WHERE number IN (SELECT feedback FROM sales_retracted))
FROM sales_progress"""


def check_sales(connection: Connection, city: str) -> None:
    for table in TABLES:
        (differences,) = connection.execute(_DIFFERENCES.format(table=table)).fetchall()
        if any(abs(difference) > TOLERANCE for difference in differences):
            seen = f"{city}: {table} differs by {differences} (decisions, feedback, rewards)"
            raise Violated("the sums of sales equal the sums over rows", seen)

"""Postgres with several replicas of one city: they write in one order, and no lock outlives a statement.

Decisions take their numbers, and feedback its numbers and versions, inside the one statement that inserts and
commits them, behind an advisory lock or the row of `shared_log`. Both are held until the commit is visible.
So at every moment the rows that can be read are the first ones in the order of their numbers and versions,
and a replica that is stopped between two statements holds nobody up.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from pricemesh.errors import DatabaseInUse, StorageUnavailable
from pricemesh.store.advisory_locks import lock_key
from pricemesh.store.postgres import Order, OrderQuery, Postgres

_TRY_SHARED_LOCK = sa.text("SELECT pg_try_advisory_lock_shared(:key)")
_IS_THERE = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid AND backend_start::TEXT = :start")
_TAKE_TURN = sa.text("SELECT pg_advisory_xact_lock(:lock)")
TRIES_TO_SEE_IT_END = 50

_DECISIONS = OrderQuery("turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(%(lock)s))")
_FEEDBACK = Order(
    OrderQuery(
        "turn AS (UPDATE shared_log SET version = version + %(size)s WHERE id = 1 "
        "RETURNING version - %(size)s AS before)",
        "batch_version - %(after)s + turn.before",
        "(SELECT before FROM turn)",
    )
)


class SharedPostgres(Postgres):
    idle_in_transaction_seconds = 2  # a replica that is stopped in a transaction blocks others no longer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.shared = True
        self._order_of_decisions = Order()  # until the city is known

    def _lock(self, connection: Connection, city: str) -> None:
        """Beside other replicas, but not beside a process that must be alone."""
        self._order_of_decisions = Order(_DECISIONS, {"lock": lock_key(f"pricemesh:{city}:decisions")})
        self._end_own_session(connection)
        if not connection.scalar(_TRY_SHARED_LOCK, {"key": lock_key(f"pricemesh:{city}")}):
            raise DatabaseInUse(
                f"a process that must be alone serves {city} from this database, or migrates it: let every "
                "process of this city have database.replicas = true"
            )

    def _end_own_session(self, connection: Connection) -> None:
        """Until it has ended, a commit of this replica may be under way there."""
        if not self._ended_session(connection):
            return
        assert self._session is not None
        pid, start = self._session
        for _ in range(TRIES_TO_SEE_IT_END):
            if not connection.scalar(_IS_THERE, {"pid": pid, "start": start}):
                return
            connection.execute(sa.text("SELECT pg_sleep(0.01)"))
        raise StorageUnavailable("the server has not ended this replica's last connection yet")

    def take_turn(self, connection: Connection) -> None:
        """A statement of its own: what follows sees all that was committed before the turn came."""
        connection.execute(_TAKE_TURN, self._order_of_decisions.parameters)

    def _order(self, table: str) -> Order:
        return _FEEDBACK if table == "feedback" else self._order_of_decisions

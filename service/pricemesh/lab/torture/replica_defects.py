"""Planted defects of replicas: in the order of rows, in what is followed, in who publishes."""

from contextlib import AbstractContextManager
from typing import Any

from pricemesh.lab.torture.planting import Defect, Original, Patch
from pricemesh.store import shared_database
from pricemesh.store.database import Database
from pricemesh.store.lease import Lease
from pricemesh.store.postgres import SINGLE_WRITER
from pricemesh.store.shared_database import SharedDatabase
from pricemesh.store.shared_log import OwnRows
from pricemesh.store.shared_postgres import SharedPostgres

# Rows


def _decisions_out_of_turn(original: Original, backend: Any, table: str) -> Any:
    return SINGLE_WRITER if table == "decisions" else original(backend, table)


def _write_once(_original: Original, database: Any, commands: Any) -> Any:
    return Database.write(database, commands)


def _learn_as_if_alone(original: Original, database: Any, connection: Any, outcome: Any) -> Any:
    """The lessons of others between own ones are skipped."""
    return outcome if outcome.lessons else original(database, connection, outcome)


def _forget_own_rows(original: Original, database: Any, connection: Any) -> None:
    database._own_rows = OwnRows()
    original(database, connection)


def _read_at_several_moments(_original: Original, connection: Any) -> AbstractContextManager[Any]:
    transaction: AbstractContextManager[Any] = connection.begin()
    return transaction


# What is followed


def _follow_rows_only(original: Original, database: Any, connection: Any) -> None:
    original(database, connection)
    database._recovered = None


# Who publishes


def _keep_lease(original: Original, lease: Any) -> Any:
    return lease._is_held or original(lease)


def _take_lease(_original: Original, _lease: Any) -> bool:
    return True


REPLICA_DEFECTS: dict[str, Defect] = {
    "decisions-out-of-turn": Defect(
        "replicas do not wait for their turn to number decisions",
        (Patch(SharedPostgres, "_order", _decisions_out_of_turn),),
    ),
    "conflict-refused": Defect(
        "callers are refused whose ids another replica has just written",
        (Patch(SharedDatabase, "_write_again", _write_once),),
    ),
    "others-skipped": Defect(
        "own feedback is learned before that of others with lower versions",
        (Patch(SharedDatabase, "_in_order", _learn_as_if_alone),),
    ),
    "own-rows-twice": Defect(
        "own decisions are counted again after a look", (Patch(SharedDatabase, "_look", _forget_own_rows),)
    ),
    "several-moments": Defect(
        "a look reads the tables at several moments",
        (Patch(shared_database, "snapshot", _read_at_several_moments),),
    ),
    "controls-not-followed": Defect(
        "controls, letters and drops of other replicas are not followed",
        (Patch(SharedDatabase, "_look", _follow_rows_only),),
    ),
    "lease-kept": Defect(
        "a publisher does not notice that it lost its lease", (Patch(Lease, "hold", _keep_lease),)
    ),
    "lease-taken": Defect("every replica publishes", (Patch(Lease, "hold", _take_lease),)),
}

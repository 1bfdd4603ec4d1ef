"""Planted defects of what changes a city's past: retractions, prunes, other terms."""

from typing import Any

from pricemesh.city import pruning
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.relearning import Relearner
from pricemesh.core.terms import Reading
from pricemesh.lab.torture.planting import Defect, Original, Patch
from pricemesh.store import retracting, writes
from pricemesh.store.pruning import PruneTransaction
from pricemesh.store.tables import city, retracted

# Retractions


def _keep_epoch(_original: Original, connection: Any) -> Any:
    change = city.update().values(rewrites=city.c.rewrites + 1).returning(city.c.rewrites)
    return connection.execute(change).scalar_one()


def _lift_in_name_only(original: Original, connection: Any, command: Any) -> Any:
    rows = connection.execute(retracted.select().where(retracted.c.retraction == command.retraction)).all()
    result = original(connection, command)
    for row in rows:
        connection.execute(retracted.insert().values(row._asdict()))
    return result


def _catch_up_from_before(original: Original, relearner: Any, fresh: Any, summaries: Any) -> Any:
    fresh.version = max(0, fresh.version - 1)
    return original(relearner, fresh, summaries)


def _load_any_past(original: Original, live: Any, payload: bytes, tallies: Any, version: int) -> Any:
    return original(live, payload, {**tallies, "rewrites": live.rewrites}, version)


# Prunes


def _delete_one_more(original: Original, transaction: Any, plan: Any) -> None:
    original(transaction, plan._replace(version=plan.version + 1))


def _learn_one_less(original: Original, live: Any, rows: Any, version: int) -> None:
    original(live, rows, version - 1)


def _find_no_difference(_original: Original, _one: Any, _other: Any) -> float:
    return 0.0


# Other terms


def _read_arm_by_number(_original: Original, reading: Any, arm: int, _price: float) -> int:
    return min(arm, len(reading._present.prices) - 1)


def _read_beyond_bounds(_original: Original, _reading: Any, _context: Any) -> bool:
    return True


YEAR_DEFECTS: dict[str, Defect] = {
    "epoch-kept": Defect(
        "a retraction begins no new epoch", (Patch(retracting, "mark_rewritten", _keep_epoch),)
    ),
    "lifted-in-name": Defect(
        "feedback of a lifted retraction stays retracted", (Patch(writes, "lift", _lift_in_name_only),)
    ),
    "caught-up-twice": Defect(
        "a learner that is made again learns its last lesson twice",
        (Patch(Relearner, "_catch_up", _catch_up_from_before),),
    ),
    "past-ignored": Defect(
        "a start goes on from a snapshot of before a retraction",
        (Patch(LiveLearner, "load", _load_any_past),),
    ),
    "pruned-too-much": Defect(
        "a prune deletes a row that has to stay, and does not check itself",
        (
            Patch(PruneTransaction, "delete", _delete_one_more),
            Patch(pruning, "difference", _find_no_difference),
        ),
    ),
    "base-short": Defect(
        "the base lacks a lesson whose row was pruned, and the prune does not check itself",
        (
            Patch(pruning, "learn_through", _learn_one_less),
            Patch(pruning, "difference", _find_no_difference),
        ),
    ),
    "arms-by-number": Defect(
        "older rows are read by the number of their arm, not by its price",
        (Patch(Reading, "arm", _read_arm_by_number),),
    ),
    "bounds-ignored": Defect(
        "older rows outside of narrower bounds are learned",
        (Patch(Reading, "is_within_bounds", _read_beyond_bounds),),
    ),
}

"""Planted defects, to measure the simulation itself: each must be found within a bounded number of seeds.

Nothing outside the simulation imports this file.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from pricemesh.city.clock import SteadyClock
from pricemesh.city.controls import Controls
from pricemesh.city.deciding import Decider
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.loop import CityLoop
from pricemesh.city.pricing import Pricing
from pricemesh.city.recalling import NOTHING_RECALLED
from pricemesh.core.ucb import choose
from pricemesh.gossip import node as node_module
from pricemesh.gossip.letter import Letter
from pricemesh.gossip.node import Node
from pricemesh.gossip.quarantine import Quarantine
from pricemesh.gossip.signing import Keyring
from pricemesh.lab.torture.planting import Defect, Original, Patch
from pricemesh.lab.torture.replica_defects import REPLICA_DEFECTS
from pricemesh.lab.torture.year_defects import YEAR_DEFECTS
from pricemesh.store import writes
from pricemesh.store.commands import DropOrigin, SaveDecisions
from pricemesh.store.database import CommitResult, Database

# Commits and answers


def _only_prices(commands: list[Any]) -> CommitResult | None:
    """The result that a commit of prices would have."""
    if not all(isinstance(command, SaveDecisions) for command in commands):
        return None
    rows = [row for command in commands for row in command.rows]
    return CommitResult([command.rows for command in commands], [], rows)


async def _answer_before_commit(original: Original, loop: Any, commands: list[Any]) -> Any:
    result = _only_prices(commands)
    if result is None:
        return await original(loop, commands)
    loop._late_commit = loop._writer._worker.run(loop._database.write, commands)
    loop._late_commit.add_done_callback(lambda future: future.exception())
    loop.waiting_rows -= sum(command.size for command in commands)
    return result


def _answer_undecided(original: Original, pricing: Any, quote: Any, ticket: Any) -> None:
    if not pricing.draining:
        original(pricing, quote, ticket)
        return
    (save,) = pricing.decider.decide_all([quote], NOTHING_RECALLED)
    ticket.settle(save.rows)


def _answer_with_new_row(original: Original, backend: Any, connection: Any, prices: Any, results: Any) -> Any:
    rows = original(backend, connection, prices, results)
    for i, command in prices:
        results[i] = command.rows
    return rows


def _delete_pending(original: Original, backend: Any, connection: Any, command: Any, *more: Any) -> Any:
    connection.execute(
        text(
            "DELETE FROM feedback WHERE decision IN (SELECT number FROM decisions WHERE made_at < :closed "
            "AND number > (SELECT settled_through FROM city))"
        ),
        {"closed": command.decided_before},
    )
    return original(backend, connection, command, *more)


# Versions and lessons


def _count_one_less(original: Original, database: Any, *more: Any) -> Any:
    yield from original(database, *more)
    database._version = max(0, database._version - 1)


def _recover_twice(original: Original, database: Any, connection: Any) -> None:
    before = len(database._missed)
    original(database, connection)
    database._missed += database._missed[before:]


def _recover_nothing(_original: Original, _database: Any, _connection: Any) -> None:
    """The lessons of a commit whose answer was lost stay unlearned."""


def _recover_no_state(_original: Original, _database: Any, _connection: Any) -> None:
    """What else such a commit did counts after the next restart only."""


def _snapshot_one_ahead(original: Original, live: Any) -> Any:
    snapshot = original(live)
    return type(snapshot)(snapshot.version + 1, snapshot.tallies, snapshot.payload)


# Decisions that wait for feedback


def _snapshot_counted_less(original: Original, live: Any) -> Any:
    position = live.position
    live.position = position._replace(decision=max(0, position.decision - 1))
    try:
        return original(live)
    finally:
        live.position = position


def _keep_waiting(_original: Original, _live: Any, _decisions: Any) -> None:
    """A decision that will never be learned goes on waiting."""


# Letters


def _check_against_nothing(original: Original, node: Any, wires: Any, differences: Any = ()) -> Any:
    letters, node.letters = node.letters, {}
    try:
        return original(node, wires, differences)
    finally:
        node.letters = letters


def _last_wins(_original: Original, stored: Any, incoming: Any) -> Any:
    return {**stored, **{item.origin: item for item in incoming}}


def _order_without_epoch(original: Original, letter: Any) -> Any:
    _, *rest = original(letter)
    return (0, *rest)


def _blame_the_bringer(original: Original, quarantine: Any, refusals: Any, sender: str) -> Any:
    return original(quarantine, [refusal._replace(is_sealed=False) for refusal in refusals], sender)


def _forget_nonces(_original: Original, _keyring: Any, _claims: Any, *, is_known: bool) -> None:
    """A nonce may be used again."""


# Operators and guardrails


def _load_without(name: str) -> Callable[..., Any]:
    def load(original: Original, controls: Any, stored: Any) -> None:
        original(controls, {key: value for key, value in stored.items() if key != name})

    return load


def _forget_drops(original: Original, connection: Any, command: Any) -> None:
    if not isinstance(command, DropOrigin):
        original(connection, command)


def _choose_freely(original: Original, decider: Any, score: Any, ids: Any, names: Any, *more: Any) -> Any:
    arms, rules, propensities = original(decider, score, ids, names, *more)
    return (arms if len(names) == 1 else choose(score, None).tolist()), rules, propensities


def _keep_uncommitted_prices(_original: Original, _decider: Any, _waiting: Any) -> None:
    """A price that was not committed stays the subject's last price."""


def _believe_any_time(original: Original, clock: Any) -> Any:
    return original(clock)._replace(is_steady=True)


DEFECTS: dict[str, Defect] = {
    "answer-before-commit": Defect(
        "prices are answered before their commit", (Patch(CityLoop, "_commit", _answer_before_commit),)
    ),
    "last-group-dropped": Defect(
        "what comes during a drain is answered and not committed",
        (Patch(Pricing, "quote", _answer_undecided),),
    ),
    "no-deduplication": Defect(
        "a repeated decision_id is answered with a new decision",
        (Patch(writes, "_save_decisions", _answer_with_new_row),),
    ),
    "pending-feedback-lost": Defect(
        "a window that closes deletes the feedback it has", (Patch(writes, "_close_window", _delete_pending),)
    ),
    "version-reused": Defect(
        "after a restart the last version is used again", (Patch(Database, "lessons", _count_one_less),)
    ),
    "learned-twice": Defect(
        "a commit whose answer was lost is learned twice", (Patch(Database, "_recover", _recover_twice),)
    ),
    "never-recovered": Defect(
        "a commit whose answer was lost is never learned", (Patch(Database, "_recover", _recover_nothing),)
    ),
    "state-not-recovered": Defect(
        "a control whose commit was not answered counts after a restart only",
        (Patch(Database, "_recover_state", _recover_no_state),),
    ),
    "snapshot-ahead": Defect(
        "a snapshot claims a lesson that it lacks", (Patch(LiveLearner, "snapshot", _snapshot_one_ahead),)
    ),
    "waiting-counted-twice": Defect(
        "a restart counts a decision again that the snapshot has counted",
        (Patch(LiveLearner, "snapshot", _snapshot_counted_less),),
    ),
    "waiting-for-ever": Defect(
        "a decision goes on waiting after its window has closed",
        (Patch(LiveLearner, "release", _keep_waiting),),
    ),
    "older-letter": Defect(
        "an older letter replaces a newer one",
        (Patch(Node, "check_letters", _check_against_nothing), Patch(node_module, "merge", _last_wins)),
    ),
    "epoch-ignored": Defect(
        "letters are ordered without their epoch", (Patch(Letter, "order", _order_without_epoch),)
    ),
    "bringer-blamed": Defect(
        "a refused letter is blamed on its bringer", (Patch(Quarantine, "record", _blame_the_bringer),)
    ),
    "nonce-unchecked": Defect(
        "nonces of gossip requests are forgotten", (Patch(Keyring, "remember", _forget_nonces),)
    ),
    "pin-forgotten": Defect("a restart forgets a pin", (Patch(Controls, "load", _load_without("pin")),)),
    "freeze-forgotten": Defect(
        "a restart forgets a freeze", (Patch(Controls, "load", _load_without("freeze")),)
    ),
    "drop-forgotten": Defect(
        "a dropped city is not stored as such", (Patch(writes, "save_state", _forget_drops),)
    ),
    "clock-believed": Defect(
        "windows close by a clock that has just jumped", (Patch(SteadyClock, "read", _believe_any_time),)
    ),
    "guardrails-in-batches": Defect(
        "batches are priced without guardrails", (Patch(Decider, "_choose", _choose_freely),)
    ),
    "uncommitted-step": Defect(
        "a step is measured from a price that was not committed",
        (Patch(Decider, "forget", _keep_uncommitted_prices),),
    ),
    **REPLICA_DEFECTS,
    **YEAR_DEFECTS,
}

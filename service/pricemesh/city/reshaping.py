"""Another ladder, or other features, for a city that has learned: what its rows teach in the new terms.

Rows stay as they are. A plan learns all of them in the new terms, which shows what can be read; carrying it
out is one transaction.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.relearning import follow_rows, use_past
from pricemesh.city.settings import Settings
from pricemesh.core.terms import Reading, Terms
from pricemesh.errors import InvalidParameter, StorageUnavailable
from pricemesh.store.changed_terms import changes_in_words, reward_fault
from pricemesh.store.replay import CountedReplay, Progress, Replay
from pricemesh.store.reshaping import (
    lessons_by_price,
    read_description,
    read_pin,
    save_terms,
)
from pricemesh.store.startup import Past


class Plan(NamedTuple):
    """What a change of terms would do."""

    changes: list[str]  # in words; nothing without any
    terms: Terms
    terms_id: int
    live: LiveLearner  # has learned all rows in these terms
    lessons: int  # in the rows
    lost_prices: dict[float, int]  # lessons at prices that are not on the new ladder
    base_lessons: int  # of pruned rows: they cannot be read in other terms

    @property
    def lessons_learned(self) -> int:
        counts = self.live.counts
        return self.lessons - counts.unreadable - counts.retracted


def make_plan(
    connection: Connection,
    settings: Settings,
    renamed: Mapping[str, str],
    filled: Mapping[str, float],
    progress: Progress,
) -> Plan:
    """In a transaction that sees one moment. `renamed` are features by their new names, with the old ones;
    `filled` are the values that older rows are taken to have of new features."""
    replay = CountedReplay(connection, progress)
    description = read_description(connection)
    past = replay.past
    present, target = past.terms_by_id[past.terms], settings.schema_description
    if (fault := reward_fault(description["reward"], target["reward"])) is not None:
        raise InvalidParameter(fault)
    change = {"renamed": dict(renamed), "filled": dict(filled)}
    is_repeated = description == target and present.change == change  # after an interruption
    fresh = Terms.of(target, {} if is_repeated else change)
    _check_names(present, fresh)
    terms_id = 1 + max(past.terms_by_id)
    every = {**past.terms_by_id, terms_id: fresh}
    Reading([present, fresh])  # refuses a feature that older rows have no value for
    live = LiveLearner(settings)
    use_past(live, Past(past.rewrites + 1, None, terms_id, every))
    follow_rows(live, replay)
    _check_pin(read_pin(connection), fresh)
    return Plan(
        changes_in_words(description, target, fresh),
        fresh,
        terms_id,
        live,
        replay.total,
        {price: n for price, n in lessons_by_price(connection).items() if price not in fresh.prices},
        0 if past.base is None else int(sum(past.base.tallies["learned"])),
    )


def carry_out(connection: Connection, settings: Settings, plan: Plan, at: float) -> None:
    """All or nothing, by the process that is alone. Rows that were committed since the plan was made are
    learned first."""
    with connection.begin():
        replay = Replay(connection)
        if replay.past.rewrites + 1 != plan.live.rewrites:
            raise StorageUnavailable(
                "what the city learns from was changed meanwhile, by a retraction or another command: run "
                "this one again; it has changed nothing"
            )
        follow_rows(plan.live, replay)
        _check_pin(read_pin(connection), plan.terms)
        snapshot = plan.live.snapshot()
        save_terms(connection, plan.terms_id, plan.terms, settings.schema_description, snapshot, at)


def _check_names(present: Terms, fresh: Terms) -> None:
    """Renamed and filled features must be there, and every new feature must be one of them."""
    for name, old in fresh.renamed.items():
        if name not in fresh.features:
            raise InvalidParameter(f"--rename {name}={old}: the configuration has no feature {name!r}")
        if old not in present.features:
            raise InvalidParameter(
                f"--rename {name}={old}: the city had no feature {old!r}, but {', '.join(present.features)}"
            )
    for name in fresh.filled:
        if name not in fresh.features or name in present.features:
            raise InvalidParameter(f"--fill {name}: {name!r} is not a new feature of the configuration")
    known = {*present.features, *fresh.renamed, *fresh.filled}
    unknown = [name for name in fresh.features if name not in known]
    gone = [name for name in present.features if name not in (*fresh.features, *fresh.renamed.values())]
    if unknown:
        rename = f", or --rename {unknown[0]}={gone[0]} if that is its old name" if gone else ""
        raise InvalidParameter(
            f"new features need a value that older rows are taken to have: {', '.join(unknown)}. Give it, as "
            f"in --fill {unknown[0]}=0.0{rename}"
        )


def _check_pin(pin: Mapping[str, Any] | None, fresh: Terms) -> None:
    if pin is not None and pin["price"] not in fresh.prices:
        raise InvalidParameter(
            f"the price {pin['price']:g} is pinned and is not on the new ladder: start the city as it was, "
            "lift the pin (DELETE /admin/pin), and stop it again"
        )

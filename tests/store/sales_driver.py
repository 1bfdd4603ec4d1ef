"""Random operations on a city's database, and a ledger in plain Python of what the sums of sales have to be.

The ledger counts in cents and knows nothing of the tables. An operation may end at any statement, as in a
crash; then the database is opened again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy import Engine, event

from pricemesh.core.decision import Decision, Margin, Occasion
from pricemesh.errors import StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.calendar import Per
from pricemesh.store.commands import (
    CloseWindow,
    Command,
    LiftRetraction,
    Margins,
    Retract,
    RetractionResult,
    SaveDecisions,
    SaveFeedback,
    Selection,
)
from pricemesh.store.database import Database
from pricemesh.store.importing import StagedRow, abandon, begin, finish, stage
from pricemesh.store.maintenance import owning
from pricemesh.store.pruning import Age
from pricemesh.store.rewriting import mark_rewritten
from pricemesh.store.sales import NO_ARM_PRICE, SalesSums
from pricemesh.store.sales_folding import next_fold, next_retractions
from pricemesh.store.sales_reads import read_sales
from pricemesh.store.stopped_database import StoppedDatabase
from pricemesh.store.tables import decisions, feedback
from tests.running import settings_for

PRICES_CENTS = (799, 899, 1049, 1201)
COST_CENTS = 333
WINDOW_SECONDS = 40_000.0
START = 1_774_600_000.0  # two days before clocks change in Europe
ZONES = ("UTC", "Europe/Lisbon", "Asia/Kolkata")
MAX_CENTS_OFF = 0.01  # a hundredth of a cent, in any sum
VECTORS = bytes(8 * 15)
MARGINS: Margins = {None: Margin(COST_CENTS / 100)}


@dataclass
class Offer:
    id: str
    made_at: float
    cents: int
    is_arm: bool = True
    sold: int | None = None  # None: not answered
    by_default: bool = False
    received_at: float = 0.0
    retractions: set[int] = field(default_factory=set)
    is_pruned: bool = False


class Crash(OSError):
    pass


class SalesDriver:
    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self.rng = Random(seed)
        self._description = settings_for(url).schema_description
        self.now = START
        self.offers: list[Offer] = []  # in the order of their numbers
        self._by_id: dict[str, Offer] = {}
        self._places: dict[str, int] = {}  # in `offers`
        self._settled = 0  # of `offers`
        self._answered: list[Offer] = []  # in the order of their feedback
        self._in_force: dict[int, list[Offer]] = {}  # what retractions cover
        self._imports = 0
        self.crashes = self.operations = 0
        self._statements_left: int | None = None
        self.zone = "UTC"
        self.database = self._open()

    # Operations

    def operate(self) -> None:
        """One, which may crash."""
        self.operations += 1
        self.now += self.rng.choice((1.0, 60.0, 3000.0))
        actions: dict[Callable[[], None], float] = {
            self._decide: 30,
            self._answer: 25,
            self._close_windows: 6,
            self._retract: 4,
            self._lift: 3,
            self._fold: 20,
            self._restart: 0.6,
            self._rewrite: 0.4,
            self._import: 0.6,
            self._prune: 0.8,
        }
        (action,) = self.rng.choices(list(actions), list(actions.values()))
        if self.rng.random() > 0.05:
            action()
            return
        self._statements_left = self.rng.randrange(8)
        try:
            with self._crashing():
                action()
        except (Crash, StorageUnavailable):
            self.crashes += 1
        finally:
            self._statements_left = None
        self._restart()

    def _decide(self) -> None:
        rows, offers = [], []
        for _ in range(self.rng.randrange(1, 5)):
            offer = self._offer()
            arm = PRICES_CENTS.index(offer.cents)
            occasion = Occasion(offer.made_at, "test", 0)
            rows.append(Decision(offer.id, None, arm, offer.cents / 100, "[]", VECTORS, 1.0, None, occasion))
            offers.append(offer)
        self.database.commit([SaveDecisions(rows)])
        self._add(offers)

    def _offer(self, **fields: Any) -> Offer:
        late = self.rng.random() < 0.05  # a clock that was behind
        made_at = self.now - (self.rng.uniform(0.0, 300_000.0) if late else 0.0)
        number = len(self.offers) + self.rng.getrandbits(60)
        return Offer(f"o{number:x}", made_at, self.rng.choice(PRICES_CENTS), **fields)

    def _add(self, offers: list[Offer]) -> None:
        self._places |= {offer.id: len(self.offers) + i for i, offer in enumerate(offers)}
        self.offers += offers
        self._by_id |= {offer.id: offer for offer in offers}

    def _some(self, condition: Callable[[Offer], bool]) -> list[Offer]:
        """A few of the newer offers that are still there."""
        candidates = [offer for offer in self.offers[-200:] if not offer.is_pruned and condition(offer)]
        return self.rng.sample(candidates, min(len(candidates), self.rng.randrange(1, 4)))

    def _answer(self) -> None:
        amounts = {offer.id: self.rng.randrange(3) for offer in self._some(lambda offer: offer.sold is None)}
        if not amounts:
            return
        items = [(id_, float(amount)) for id_, amount in amounts.items()]
        frozen = self.rng.random() < 0.1
        self.database.commit([SaveFeedback(items, self.now, frozen, 0.0, MARGINS)])
        for id_, sold in amounts.items():
            self._give(self._by_id[id_], sold)

    def _give(self, offer: Offer, sold: int) -> None:
        offer.sold, offer.received_at = sold, self.now
        self._answered.append(offer)

    def _close_windows(self) -> None:
        decided_before, sold = self.now - WINDOW_SECONDS, self.rng.choice((0, 0, 1))
        command = CloseWindow(decided_before, float(sold), self.now, False, MARGINS, limit=20)
        self.database.commit([command])
        unsettled = (offer for offer in self.offers[self._settled :] if not offer.is_pruned)
        for offer in islice(unsettled, 20):
            if offer.made_at >= decided_before:
                break
            self._settled = self._places[offer.id] + 1
            if offer.sold is None:
                offer.by_default = True
                self._give(offer, sold)

    def _retract(self) -> None:
        if self.rng.random() < 0.3:
            since = self.now - self.rng.uniform(0.0, 5000.0)
            newest = takewhile(lambda offer: offer.received_at >= since, reversed(self._answered))
            covered = [offer for offer in newest if not offer.is_pruned]
            selection = Selection(since=since)
        else:
            covered = self._some(lambda offer: offer.sold is not None)
            selection = Selection(decisions=tuple(offer.id for offer in covered))
        if not covered:
            return
        (result,) = self.database.commit([Retract(selection, "test", "", self.now)]).results
        assert isinstance(result, RetractionResult), result
        self._in_force[result.retraction.id] = covered
        for offer in covered:
            offer.retractions.add(result.retraction.id)

    def _lift(self) -> None:
        if not self._in_force:
            return
        retraction = self.rng.choice(sorted(self._in_force))
        self.database.commit([LiftRetraction(retraction, "test", "", self.now)])
        for offer in self._in_force.pop(retraction):
            if not offer.is_pruned:
                offer.retractions.discard(retraction)

    def _fold(self) -> None:
        """A step that was read before another operation is committed only if it still fits."""
        is_slow = self.operations // 300 % 2 == 0  # then rows come faster than they are folded
        reader, size = self.database.reader, self.rng.choice((1, 2) if is_slow else (7, 200))
        steps: list[Command] = []
        if (fold := reader.read_at_once(lambda connection: next_fold(connection, size))) is not None:
            steps.append(fold)
        steps += reader.read_at_once(lambda connection: next_retractions(connection, size + 1))
        if self.rng.random() < 0.2:
            self._retract()
        if self.rng.random() < 0.1:
            steps *= 2  # a second publisher
        for step in steps:
            self.database.commit([step])

    def _rewrite(self) -> None:
        """As a change of terms does."""
        self._stop()
        with owning(self._url, "lisbon") as connection, connection.begin():
            mark_rewritten(connection)
        self._restart()

    def _import(self) -> None:
        self._imports += 1
        offers = [self._offer() for _ in range(30)]
        for offer in offers:
            offer.made_at -= 40 * 86_400.0
            offer.sold = self.rng.randrange(3)
            offer.is_arm = self.rng.random() < 0.7
        offers.sort(key=lambda offer: offer.made_at)
        self._stop()
        name = f"import{self._imports}"
        with owning(self._url, "lisbon") as connection:
            abandon(connection)  # one that a crash has interrupted
            begun = begin(connection, name, name, name, self.now)
            finish(
                connection, stage(connection, begun, [self._staged(offer) for offer in offers], 30), self.now
            )
        self._add(offers)
        for offer in offers:
            self._give(offer, offer.sold or 0)
        self._restart()

    def _staged(self, offer: Offer) -> StagedRow:
        arm = PRICES_CENTS.index(offer.cents) if offer.is_arm else -1
        assert offer.sold is not None
        reward = (offer.cents - COST_CENTS) * offer.sold / 100
        return StagedRow(
            offer.id, offer.made_at, arm, offer.cents / 100, VECTORS, 0.0, reward, float(offer.sold)
        )

    def _prune(self) -> None:
        self._stop()
        stopped = StoppedDatabase(self._url, "lisbon", Runtime())
        age = Age(self.now - 2 * WINDOW_SECONDS, self.now, closes_windows=True)
        try:
            with stopped.prune(self._description, age) as transaction:
                plan = transaction.plan()
                if plan.rows:
                    transaction.delete(plan)
        finally:
            stopped.close()
        self._restart()
        with self._connection() as connection:
            there = set(connection.scalars(sa.select(decisions.c.id)))
        for offer in self.offers:
            offer.is_pruned |= offer.id not in there

    # Starts and crashes

    def _open(self) -> Database:
        database = Database(self._url, "lisbon", Runtime(), lock_wait_seconds=5.0)
        database.open(self._description, self.zone)
        engine = sa.create_engine(self._url)
        with engine.connect() as connection:
            version = connection.scalar(sa.select(sa.func.max(feedback.c.version))) or 0
        engine.dispose()
        assert not list(database.lessons(version))
        return database

    def _stop(self) -> None:
        left, self._statements_left = self._statements_left, None
        self.database.close()
        self._statements_left = left

    def _restart(self) -> None:
        self._statements_left = None
        self.database.close()
        self.zone = self.rng.choice(ZONES)
        self.database = self._open()

    @contextmanager
    def _connection(self) -> Iterator[sa.Connection]:
        engine = sa.create_engine(self._url)
        with engine.connect() as connection:
            yield connection
        engine.dispose()

    @contextmanager
    def _crashing(self) -> Iterator[None]:
        event.listen(Engine, "before_cursor_execute", self._before_statement)
        try:
            yield
        finally:
            event.remove(Engine, "before_cursor_execute", self._before_statement)

    def _before_statement(self, *_: Any) -> None:
        if self._statements_left is None:
            return
        self._statements_left -= 1
        if self._statements_left < 0:
            self._statements_left = None  # connections are closed without another crash
            raise Crash("the process ended here")

    # What has to be

    def check(self) -> None:
        for per in Per:
            zone = self.rng.choice(ZONES)
            read = partial(read_sales, time_zone=zone, per=per, since=0, until=2_000_000_000, by_arm=True)
            found = self.database.reader.read_at_once(read)
            assert found.is_complete
            expected = self._expected(zone, per)
            groups = {key: sums for key, sums in found.groups.items() if any(sums[:-1])}
            assert groups.keys() == expected.keys()
            for key, sums in groups.items():
                _assert_same(sums, expected[key])

    def _expected(self, zone: str, per: Per) -> dict[tuple[int, float], SalesSums]:
        cents: dict[tuple[int, float], SalesSums] = defaultdict(SalesSums)
        for offer in self.offers:
            key = _start(offer.made_at, zone, per), offer.cents / 100 if offer.is_arm else NO_ARM_PRICE
            cents[key] = cents[key].plus(_sums_of(offer))
        return dict(cents)


def _sums_of(offer: Offer) -> SalesSums:
    """In cents."""
    sums = SalesSums(decisions=1, price_total=offer.cents, lowest_price=offer.cents / 100)
    if offer.sold is None:
        return sums
    if offer.retractions:
        return sums._replace(retracted=1)
    return sums._replace(
        answered=int(not offer.by_default),
        defaults=int(offer.by_default),
        bought=int(offer.sold > 0),
        sold=offer.sold,
        revenue=offer.cents * offer.sold,
        reward=(offer.cents - COST_CENTS) * offer.sold,
    )


def _assert_same(sums: SalesSums, expected: SalesSums) -> None:
    for name in ("decisions", "answered", "defaults", "bought", "sold", "retracted", "lowest_price"):
        assert getattr(sums, name) == getattr(expected, name), name
    for name in ("price_total", "revenue", "reward"):
        assert abs(100 * getattr(sums, name) - getattr(expected, name)) < MAX_CENTS_OFF, name


def _start(seconds: float, zone: str, per: Per) -> int:
    """By the calendar of the standard library."""
    local = datetime.fromtimestamp(seconds, ZoneInfo(zone))
    if per is Per.HOUR:
        return int(local.replace(minute=0, second=0, microsecond=0).timestamp())
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if per is Per.WEEK:
        midnight -= timedelta(days=midnight.weekday())
    return int(midnight.timestamp())

"""The use cases of a city: quote a price, learn from feedback, count peers, obey an operator.

Knows no HTTP and no SQL. Lives on one event loop, which alone touches the learner; what is answered has been
committed.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pricemesh.city.clock import SteadyClock
from pricemesh.city.controls import Control, Controls
from pricemesh.city.deciding import Decider, Quote
from pricemesh.city.guardrails import Guardrails, Limits
from pricemesh.city.health import DatabaseHealth
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.loop import CityLoop, FutureTicket, Ticket
from pricemesh.city.reading import ReadLane
from pricemesh.city.relearning import Relearner, margins_of
from pricemesh.city.replicas import ConnectDatabase, connect_database, role_of
from pricemesh.city.report import report
from pricemesh.city.sales import lowest_prices
from pricemesh.city.settings import Settings
from pricemesh.city.wait_limit import Gate
from pricemesh.core.policies import Learner
from pricemesh.core.summary import Summary
from pricemesh.errors import ImpossiblePin, StorageCause, StorageUnavailable, UnknownDecision
from pricemesh.runtime import Runtime
from pricemesh.store.acts import OPERATOR, Act, ActKind
from pricemesh.store.commands import (
    CloseWindow,
    Command,
    Margins,
    Probe,
    SaveFeedback,
    SetControl,
    StoredDecision,
    UpdateMesh,
)
from pricemesh.store.present_state import MeshRecord, PresentState
from pricemesh.store.startup import refuse_damaged_values

log = logging.getLogger("pricemesh")

NO_DETAIL: Mapping[str, Any] = {}
LIFTS = {ActKind.LIFT_PIN: "pin", ActKind.LIFT_FREEZE: "freeze", ActKind.JOIN: "left"}  # which control
SHORT_READS_AT_A_TIME = 4  # of one decision, or of totals
LONG_READS_AT_A_TIME = 2  # of many decisions
MIN_WINDOW_PAUSE_SECONDS, MAX_WINDOW_PAUSE_SECONDS = 0.05, 60.0
LARGEST_BODIES_AT_ONCE = 8  # that may be arriving, in bytes; of smaller ones, more


class Pricing:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        *,
        observe_commit: Callable[[int, float], None] = lambda _rows, _seconds: None,
        connect: ConnectDatabase = connect_database,
    ) -> None:
        self.settings = settings
        self._margins: Margins | None = None  # of a city of purchases, once it is open
        self.runtime = runtime
        self.clock = SteadyClock(
            runtime.clock,
            runtime.monotonic,
            max_step_seconds=settings.clock.max_step_seconds,
            steady_seconds=settings.clock.steady_seconds,
        )
        self.database = connect(settings, runtime)
        self.role = role_of(self.database, runtime)
        self.health = DatabaseHealth(
            runtime,
            check=self.database.fault,
            submit_probe=lambda ticket: self.loop.submit(Probe(), ticket),
        )
        self.live = LiveLearner(settings)
        self.controls = Controls()
        self._guardrails = Guardrails(settings)
        self.decider = Decider(settings, self.live, self._guardrails, self.controls, self.clock, runtime)
        self.relearner = Relearner(settings, self.database, self.live, self.clock, runtime)
        self._observe_commit = observe_commit
        self.gate = Gate(LARGEST_BODIES_AT_ONCE * settings.limits.body_bytes)
        self._loop: CityLoop | None = None
        read_seconds = settings.database.read_timeout_seconds
        self._short_reads = ReadLane(runtime, "short reads", SHORT_READS_AT_A_TIME, read_seconds)
        self._long_reads = ReadLane(runtime, "long reads", LONG_READS_AT_A_TIME, read_seconds)
        self.recover_mesh: Callable[[MeshRecord], None] = lambda _record: None  # as gossip does it
        self._opened = False
        self.draining = False

    @property
    def learner(self) -> Learner:
        return self.live.learner

    @property
    def version(self) -> int:
        return self.live.version

    # Start and end

    def open(self) -> None:
        """Own the database and bring the learner to what it keeps; raises whatever hinders a start."""
        zone = self.settings.display.time_zone
        stored = self.database.open(self.settings.schema_description, zone)
        self.mesh_record = stored.present.mesh_record
        try:
            with refuse_damaged_values():
                self.relearner.restore(stored)
                self._load_controls(stored.present)
        except BaseException:
            self.database.close()
            raise
        self._margins = margins_of(self.settings, self.live)
        arm = self.controls.pinned_arm
        if arm is not None and not self._guardrails.allows(arm):
            log.warning("the pin is outside floor and ceiling and has no effect", extra={"arm": arm})
        self._opened = True

    def _load_controls(self, present: PresentState) -> None:
        self.controls.load(
            {name: Control(json.loads(value), since) for name, (value, since) in present.controls.items()}
        )

    def _recover(self, present: PresentState) -> None:
        """A commit whose answer was lost may have happened: from now on what is stored is in force."""
        self._load_controls(present)
        self.mesh_record = present.mesh_record
        self.recover_mesh(present.mesh_record)
        self.relearner.follow(present.rewrites)

    async def start(self) -> None:
        if not self._opened:
            await self.runtime.in_thread(self.open)
        self._loop = CityLoop(
            self.database,
            self.decider,
            self.live,
            self.runtime,
            self._observe_commit,
            self.health,
            self.gate,
            self.settings.limits.max_wait_seconds,
            self._recover,
            self.role,
        )
        self.relearner.loop = self._loop
        await self.role.renew(self.loop.following.wait)

    async def stop(self) -> None:
        self.health.close()
        await self.relearner.close()
        if self._loop is not None:
            if self.live.has_unsaved_rows and self.role.is_publisher:
                self._loop.save_snapshot()
            await self._loop.close()
            self._loop = None
        await self.role.end()
        for lane in (self._short_reads, self._long_reads):
            await lane.close()
        await self.runtime.in_thread(self.database.close)

    @property
    def running(self) -> bool:
        return self._loop is not None

    @property
    def waiting_rows(self) -> int:
        return self._loop.waiting_rows if self._loop is not None else 0

    @property
    def loop(self) -> CityLoop:
        assert self._loop is not None, "Pricing.start() comes first"
        return self._loop

    # Prices and feedback

    def quote(self, quote: Quote, ticket: Ticket) -> None:
        """Decide all and save them in one commit; the result is what is saved under each id."""
        self.loop.quote(quote, ticket)

    def feedback(self, items: Sequence[tuple[str, float]], ticket: Ticket, key: str | None = None) -> None:
        """Save feedback in one commit and learn it; the result has a `FeedbackResult` for each. An item is a
        decision's id with the units sold in a city of purchases, with the reward in one of values; the key of
        the API that sends it is saved with it. While the clock is not steady, only what is too late by its
        old and by its new time is refused."""
        time = self.clock.read()
        decided_after = time.earliest - self.settings.feedback.window_seconds
        command = SaveFeedback(items, time.now, self.controls.frozen, decided_after, self._margins, key)
        self.loop.submit(command, ticket)

    async def commit(self, command: Command) -> Any:
        """Its result, once it is committed; StorageUnavailable when it could not be."""
        return await self.loop.commit(command)

    async def close_windows(self) -> None:
        """Where a default is configured, give it to decisions whose window has closed, for ever. Where the
        learner counts decisions that wait, those stop waiting."""
        if not self.live.closes_windows:
            return
        tenth = self.settings.feedback.window_seconds / 10
        pause_seconds = min(MAX_WINDOW_PAUSE_SECONDS, max(MIN_WINDOW_PAUSE_SECONDS, tenth))
        while True:
            try:
                if self.role.is_publisher and await self.close_window():
                    continue
            except StorageUnavailable as fault:
                if not self.health.is_lost:  # whose line in the log says all
                    log.warning("windows not closed", extra={"fault": str(fault)})
            await asyncio.sleep(pause_seconds)

    async def close_window(self) -> int:
        """Settle some decisions whose window has closed unanswered, by the default amount if there is one.
        Returns how many were settled, with feedback or without; 0 when none is left, or the clock is not
        steady."""
        amount = self.settings.feedback.default_amount
        time = self.clock.read()
        if not self.live.closes_windows or not time.is_steady:
            return 0
        closed_before = time.now - self.settings.feedback.window_seconds
        command = CloseWindow(closed_before, amount, time.now, self.controls.frozen, self._margins)
        settled: int = await self.commit(command)
        return settled

    # Peers

    async def absorb(self, summaries: Mapping[str, Summary]) -> None:
        """Count the newest summaries from the next price on; folding runs beside the prices. Changes that no
        later tick brings back are committed before anyone is told of them."""
        live = self.live
        while True:
            learner = self.learner
            group = learner.group_of(self.settings.city, summaries)
            folded = await self.runtime.in_thread(live.fold, group)
            if learner is self.learner:  # or one that was made again has taken its place
                break
        learner.adopt(folded)  # refuses numbers that are not finite: what counted before goes on
        commands: list[Command] = []
        if learner.mixes_peers:
            live.mixes += 1
            commands.append(live.snapshot())
        mixes, memory = live.mixes, live.tick_memory()
        if memory is not None:
            commands.append(UpdateMesh(memory=memory))
        tickets = [FutureTicket() for _ in commands]
        for command, ticket in zip(commands, tickets, strict=True):
            self.loop.submit(command, ticket)
        for ticket in tickets:
            await ticket.future
        live.committed_mixes = mixes

    def restore_peers(self, summaries: Mapping[str, Summary]) -> bool:
        """After a restart, count peers as before it. False where that is impossible until the next absorb."""
        return self.live.restore_peers(self.mesh_record.memory, summaries)

    # Operators

    async def pin(self, price: float, reason: str, by: str = OPERATOR) -> None:
        """Give everyone this price until the pin is lifted."""
        prices = np.array(self.settings.arms.prices)
        matches = np.flatnonzero(np.isclose(prices, price, rtol=1e-12))
        if not matches.size:
            raise ImpossiblePin(f"{price} is no arm's price; there are {prices.tolist()}")
        arm = int(matches[0])
        if not self._guardrails.allows(arm):
            raise ImpossiblePin(f"{price} is outside the guardrails' floor and ceiling")
        value = {"arm": arm, "price": float(prices[arm]), "reason": reason}
        await self.control("pin", value, self._act(ActKind.PIN, by, reason, {"price": value["price"]}))

    async def freeze(self, reason: str, by: str = OPERATOR) -> None:
        """Keep feedback from now on without learning from it."""
        await self.control("freeze", {"reason": reason}, self._act(ActKind.FREEZE, by, reason))

    async def lift(self, kind: ActKind, by: str = OPERATOR, reason: str = "") -> None:
        """End what a pin, a freeze or a leave has put in force."""
        name = LIFTS[kind]
        act = self._act(kind, by, reason) if name in self.controls else None
        await self.control(name, None, act)

    async def leave(self, by: str, reason: str) -> None:
        """Record that this city has left the mesh; gossip acts on it."""
        await self.control("left", {}, self._act(ActKind.LEAVE, by, reason))

    async def control(self, name: str, value: dict[str, Any] | None, act: Act | None = None) -> None:
        now = self.runtime.clock()
        await self.commit(SetControl(name, None if value is None else json.dumps(value), now, act))
        self.controls.put(name, None if value is None else Control(value, now))

    def _act(self, kind: ActKind, by: str, reason: str, detail: Mapping[str, Any] = NO_DETAIL) -> Act:
        return Act(self.runtime.clock(), kind, by, reason, detail)

    # Reading

    @property
    def limits(self) -> Limits:
        """Which arms may be chosen now for a subject without a last price."""
        return self._guardrails.limits(None, self.controls.pinned_arm)

    async def decision(self, id_: str) -> StoredDecision:
        row: StoredDecision | None = await self.read_short(self.database.reader.decision, id_)
        if row is None:
            raise UnknownDecision(f"there is no decision {id_!r}")
        return row

    async def latest_decisions(self, limit: int) -> list[StoredDecision]:
        rows: list[StoredDecision] = await self.read_short(self.database.reader.latest_decisions, limit=limit)
        return rows

    async def read_many(self, read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """A read that may look at many rows."""
        self._check_answers()
        return await self._long_reads.run(read, *arguments, **named)

    async def read_short(self, read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """A read of a few rows."""
        self._check_answers()
        return await self._short_reads.run(read, *arguments, **named)

    def _check_answers(self) -> None:
        if self.database.is_silent:
            raise StorageUnavailable("the database does not answer", StorageCause.TIMEOUT)

    async def faults(self) -> list[str]:
        """Why this city cannot serve; nothing when it can."""
        if self.draining or not self.running:
            return ["shutting down" if self.draining else "the learner is not loaded"]
        fault = await self.health.check()
        return [] if fault is None else [fault]

    @property
    def is_ready(self) -> bool:
        """As `faults`, by what was seen last."""
        return self.running and not self.draining and self.health.is_ready

    async def state(self) -> dict[str, Any]:
        totals = await self.read_short(self.database.reader.totals)
        now = self.runtime.clock()
        lowest = await self.read_short(lowest_prices, self.settings, self.database.reader, now)
        return {**report(self, totals), "lowest_prices_30_days": lowest}

"""The use cases: quote a price, learn from feedback, and what an operator may do. No HTTP, no SQL.

Lives on one event loop, which alone touches the learner. What it answers has been committed.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import numpy as np

from pricemesh.city.deciding import Decider, Quote, Standing
from pricemesh.city.guardrails import Guardrails, Limits
from pricemesh.city.settings import Settings
from pricemesh.core.policies import dump, load
from pricemesh.core.summary import Summary
from pricemesh.errors import (
    BadSummary,
    ImpossiblePin,
    PricemeshError,
    StorageUnavailable,
    UnknownDecision,
)
from pricemesh.runtime import Runtime
from pricemesh.store.commands import (
    CloseWindow,
    Command,
    Decision,
    Lesson,
    SaveDecisions,
    SaveFeedback,
    SaveSnapshot,
    SetControl,
    StoredDecision,
    UpdateMesh,
)
from pricemesh.store.database import CommitResult, Database
from pricemesh.store.writer import Done, Writer

log = logging.getLogger("pricemesh")

SNAPSHOT_EVERY = 1000  # feedback learned between snapshots: the most a start has to learn again


class Pricing:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        *,
        observed: Callable[[int, float], None] = lambda _size, _seconds: None,
    ) -> None:
        self.settings = settings
        self.runtime = runtime
        self.database = Database(
            settings.database.url, settings.city, runtime, settings.database.lock_wait_seconds
        )
        self._clock = runtime.clock
        self._observed = observed
        self.prices = np.array(settings.arms.prices)
        self.learner = settings.policy.policy.learner(settings.shape)
        self.version = 0
        self._mixed = 0  # ticks that changed what this city itself tells
        self.mixes = 0  # of these, how many are committed
        self._snapshot_version = 0
        self.learned = np.zeros(len(self.prices))  # by arm
        self.reward_sums = np.zeros(len(self.prices))
        self.decided = [0] * len(self.prices)  # since the start, by arm
        self.controls: dict[str, tuple[dict[str, Any], float]] = {}
        self._writer: Writer | None = None
        self._opened = False
        self.draining = False
        self._rails = Guardrails(settings, self.database.reader)
        self._decider = Decider(settings, self.learner, self._rails, runtime.clock)

    # Start and end

    def open(self) -> None:
        """Own the database and bring the learner to what it keeps. Whatever hinders a start is said here."""
        kept = self.database.open(self.settings.schema_description)
        self.mesh_record = kept.mesh_record
        if kept.payload is not None and kept.tallies["policy"] == self.policy_parameters():
            self._load(kept.payload, kept.tallies, kept.version)
        elif kept.payload is not None:
            log.warning("the policy has changed: its learner is made anew from all feedback")
        self._snapshot_version = self.version
        for lessons in self.database.lessons(self.version):
            self._learn(lessons)
        self.controls = {name: (json.loads(value), since) for name, (value, since) in kept.controls.items()}
        pinned = self._pinned_arm
        if pinned is not None and not self._rails.allows(pinned):
            log.warning("the pin is outside floor and ceiling and has no effect", extra={"arm": pinned})
        self._opened = True

    def _load(self, payload: bytes, tallies: dict[str, Any], version: int) -> None:
        """Go on from a snapshot, or without it if it is damaged: the rows are the truth."""
        if tallies["digest"] != sha256(payload).hexdigest():
            log.warning("the snapshot is damaged: learning all feedback again")
            return
        load(self.learner, payload)
        self.learned[:] = tallies["learned"]
        self.reward_sums[:] = tallies["reward_sums"]
        self._mixed = self.mixes = tallies.get("mixes", 0)
        self.version = version

    async def start(self) -> None:
        if not self._opened:
            await asyncio.to_thread(self.open)
        self._writer = Writer(self.database, self._ready, self._committed, self._observed)

    async def stop(self) -> None:
        if self._writer is not None:
            if self.version > self._snapshot_version:
                self._keep_snapshot()
            await self._writer.close()
            self._writer = None
        await asyncio.to_thread(self.database.close)

    @property
    def running(self) -> bool:
        return self._writer is not None

    @property
    def writer(self) -> Writer:
        assert self._writer is not None, "Pricing.start() comes first"
        return self._writer

    async def commit(self, command: Command) -> Any:
        """Its result, once it is committed; StorageUnavailable when it could not be."""
        return await self.writer.submit(command)

    # Prices

    def quote(self, quote: Quote, done: Done) -> None:
        """Decide all, keep them in one commit, and tell what is kept under each id."""
        if [subject for _, subject in quote.names if subject is not None]:
            task = asyncio.ensure_future(self._quote_subjects(quote))
            task.add_done_callback(lambda quoted: done(quoted.exception() or quoted.result()))
        else:
            self.writer.put(quote, done)

    async def _quote_subjects(self, quote: Quote) -> Sequence[Decision]:
        """A subject's price is a step from its last one: what is needed for it is fetched first, and they
        are decided in the order they came."""
        self._decider.contexts([quote])  # refused, if it is, before anything is fetched
        await self._rails.recall(quote.names)
        deciding = self._decide_all([quote])[0]
        if isinstance(deciding, PricemeshError):
            raise deciding
        try:
            kept: Sequence[Decision] = await self.writer.submit(deciding)
        except StorageUnavailable:
            self._rails.forget(quote.names)
            raise
        return kept

    def _ready(self, waiting: Sequence[Quote | Command]) -> Sequence[Command | PricemeshError]:
        """Decide all prices that are asked for."""
        quotes = [one for one in waiting if type(one) is Quote]
        if not quotes:
            return waiting  # type: ignore[return-value]
        made = iter(self._decide_all(quotes))
        return [next(made) if type(one) is Quote else one for one in waiting]  # type: ignore[misc]

    def _decide_all(self, quotes: Sequence[Quote]) -> Sequence[SaveDecisions | PricemeshError]:
        return self._decider.decide_all(quotes, Standing(self.version, self._pinned_arm))

    @property
    def _pinned_arm(self) -> int | None:
        return self.controls["pin"][0]["arm"] if "pin" in self.controls else None

    # Feedback

    def feedback(self, items: Sequence[tuple[str, float]], done: Done) -> None:
        """Keep rewards in one commit, learn them, and tell what came of each, a `FeedbackResult`."""
        now = self._clock()
        window = self.settings.feedback.window_seconds
        self.writer.put(SaveFeedback(items, now, "freeze" in self.controls, now - window), done)

    async def close_window(self) -> int:
        """Where there is a default reward, give it to decisions whose window has closed unanswered."""
        reward = self.settings.feedback.default_reward
        if reward is None:
            return 0
        now = self._clock()
        before = now - self.settings.feedback.window_seconds
        closing = CloseWindow(before, reward, now, "freeze" in self.controls)
        lessons: list[Lesson] = await self.writer.submit(closing)
        return len(lessons)

    def _committed(self, operations: Sequence[Command], outcome: CommitResult) -> None:
        """Learn what has just become durable, in the order of its versions."""
        self._learn(outcome.recovered)
        lessons: list[Lesson] = []
        for operation, result in zip(operations, outcome.results, strict=True):
            if isinstance(result, Exception):
                continue
            match operation:
                case SaveFeedback():
                    lessons += [item.lesson for item in result if item.lesson is not None]
                case SaveDecisions(rows, named):
                    # Under a name that was there already, or comes twice, nothing new was decided.
                    pairs = zip(rows, result, strict=True) if named else ()
                    fresh = {row.id: row for row, kept in pairs if row is kept}.values() if named else rows
                    for row in fresh:
                        self.decided[row.arm] += 1
                case CloseWindow():
                    lessons += result
        self._learn(lessons)
        if self.version - self._snapshot_version >= SNAPSHOT_EVERY:
            self._keep_snapshot()

    def _learn(self, lessons: Sequence[Lesson]) -> None:
        for lesson in lessons:
            context = np.frombuffer(lesson.vectors, count=self.settings.shape.dim)
            self.learner.learn(context, lesson.arm, lesson.reward)
            self.learned[lesson.arm] += 1
            self.reward_sums[lesson.arm] += lesson.reward
            self.version = lesson.version

    def _keep_snapshot(self) -> None:
        self._snapshot_version = self.version
        self.writer.submit(self._snapshot(self._mixed)).add_done_callback(_log_fault)

    def _snapshot(self, mixes: int) -> SaveSnapshot:
        payload = dump(self.learner)
        tallies = {
            "policy": self.policy_parameters(),
            "digest": sha256(payload).hexdigest(),
            "learned": self.learned.tolist(),
            "reward_sums": self.reward_sums.tolist(),
            "mixes": mixes,
        }
        return SaveSnapshot(self.version, json.dumps(tallies), payload)

    # Peers

    async def absorb(self, held: Mapping[str, Summary]) -> None:
        """Let the newest summaries count from the next price on; the work is done beside the prices. What
        this moved that no later tick brings back is committed before anyone is told of it."""
        learner = self.learner
        folded = await asyncio.to_thread(learner.fold, *learner.stack_summaries(self.settings.city, held))
        learner.adopt(folded)  # refused where a number in it is not finite: what counted before goes on
        memory = {name: value.tolist() for name, value in learner.memory().items()}
        kept: list[asyncio.Future[Any]] = []
        if learner.mixes_peers:
            self._mixed += 1
            self._snapshot_version = self.version
            kept.append(self.writer.submit(self._snapshot(self._mixed)))
        mixed = self._mixed
        if memory:
            memory_of_ticks = json.dumps({"origins": learner.origins, **memory})
            kept.append(self.writer.submit(UpdateMesh(memory=memory_of_ticks)))
        for done in kept:
            await done
        self.mixes = mixed

    @property
    def settled(self) -> bool:
        """Whether all that ticks have moved is committed."""
        return self.mixes == self._mixed

    def rejoin(self, held: Mapping[str, Summary]) -> bool:
        """After a restart: peers count as they did. False when they do not, until the next absorb."""
        memory = dict(self.mesh_record.memory)
        origins = tuple(memory.pop("origins", ()))
        try:
            if memory.keys() == self.learner.memory().keys() and origins:
                self.learner.recall(origins, {name: np.array(value) for name, value in memory.items()})
            self.learner.absorb_summaries(self.settings.city, held, again=True)
        except (BadSummary, ValueError) as fault:
            log.warning("peers count again with the next tick", extra={"fault": str(fault)})
            return False
        return True

    # Operators

    async def pin(self, price: float, reason: str) -> None:
        """Give everyone this price until the pin is lifted."""
        at = np.flatnonzero(np.isclose(self.prices, price, rtol=1e-12))
        if not at.size:
            raise ImpossiblePin(f"{price} is no arm's price; there are {self.prices.tolist()}")
        arm = int(at[0])
        if not self._rails.allows(arm):
            raise ImpossiblePin(f"{price} is outside the guardrails' floor and ceiling")
        await self.control("pin", {"arm": arm, "price": float(self.prices[arm]), "reason": reason})

    async def freeze(self, reason: str) -> None:
        """Keep feedback from now on without learning from it."""
        await self.control("freeze", {"reason": reason})

    async def lift(self, name: str) -> None:
        await self.control(name, None)

    async def control(self, name: str, value: dict[str, Any] | None) -> None:
        now = self._clock()
        await self.writer.submit(SetControl(name, None if value is None else json.dumps(value), now))
        if value is None:
            self.controls.pop(name, None)
        else:
            self.controls[name] = (value, now)

    # Reading

    @property
    def limits(self) -> Limits:
        """Which arms may be chosen now for somebody without a last price."""
        return self._rails.limits(None, self._pinned_arm)

    async def decision(self, id_: str) -> StoredDecision:
        row = await asyncio.to_thread(self.database.reader.decision, id_)
        if row is None:
            raise UnknownDecision(f"there is no decision {id_!r}")
        return row

    async def latest_decisions(self, **filters: Any) -> list[StoredDecision]:
        return await asyncio.to_thread(lambda: self.database.reader.latest_decisions(**filters))

    async def faults(self) -> list[str]:
        """Why this city cannot serve; nothing when it can."""
        if self.draining or not self.running:
            return ["shutting down" if self.draining else "the learner is not loaded"]
        reachable = await asyncio.to_thread(self.database.reader.reachable)
        return [] if reachable else ["the database cannot be reached, or its schema is not current"]

    async def state(self) -> dict[str, Any]:
        made, answered = await asyncio.to_thread(self.database.reader.totals)
        means = self.reward_sums / np.maximum(self.learned, 1)
        return {
            "city": self.settings.city,
            "policy": self.policy_parameters(),
            "version": self.version,
            "decisions": made,
            "feedback": answered,
            "arms": [
                {
                    "arm": arm,
                    "price": price,
                    "count": int(self.learned[arm]),
                    "mean_reward": float(means[arm]) if self.learned[arm] else None,
                }
                for arm, price in enumerate(self.settings.arms.prices)
            ],
            "features": self.settings.features.model_dump(),
            "guardrails": self.settings.guardrails.model_dump(),
            "controls": {name: {"value": value, "since": at} for name, (value, at) in self.controls.items()},
            "fingerprint": self.settings.fingerprint.hex(),
        }

    def policy_parameters(self) -> dict[str, Any]:
        policy = self.settings.policy.policy
        return {"name": policy.name, **asdict(policy)}  # type: ignore[call-overload]


def _log_fault(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled() and (fault := done.exception()):
        log.warning("snapshot not kept, the next one will be", extra={"fault": str(fault)})

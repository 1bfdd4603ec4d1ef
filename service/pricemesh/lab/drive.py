"""The simulator client: synthetic demand at live cities, rewards posted back, regret and latency measured.

Open loop: calls leave at a fixed rate whether or not earlier ones were answered, and latency counts from
the time a call should have left, so that a slow city cannot hide its slowness by slowing its callers.
Closed loop: so many callers, each asking when its last call was answered.
"""

import asyncio
import heapq
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pricemesh.errors import InvalidParameter
from pricemesh.lab.caller import Caller, CallFailed
from pricemesh.lab.latency import Latencies
from pricemesh.lab.plan import Plan
from pricemesh.lab.towns import Town, survey, world_for
from pricemesh.lab.worlds import Instance, Round, World, play_out

FLUSH_SECONDS = 15.0
LATE_AT_A_TIME = 16
MOST_MARKS = 4000
MOST_BEHIND = 10_000  # rounds a city may be behind the others before it skips some
PAUSE_WHEN_UNREACHABLE = 0.5


@dataclass
class Tally:
    """What came of it in one city."""

    town: Town
    due: int = 0
    decisions: int = 0  # answered
    in_time: int = 0  # of these, while demand was being sent
    regret: float = 0.0
    reward: float = 0.0
    chosen: Counter[float] = field(default_factory=Counter)
    price_latency: Latencies = field(default_factory=Latencies)
    feedback_latency: Latencies = field(default_factory=Latencies)
    feedback_sent: int = 0
    learned: int = 0
    lost: int = 0
    duplicated: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    explained: dict[str, str] = field(default_factory=dict)  # of a failure, what the city said first
    track: list[tuple[float, int, float]] = field(default_factory=list)  # (seconds, decisions, regret)
    _apart: float = 0.1

    @property
    def regret_per_decision(self) -> float:
        return self.regret / self.decisions if self.decisions else 0.0

    def mark(self, seconds: float) -> None:
        """Remember where the regret stood; of a long run ever fewer times."""
        if not self.track or seconds - self.track[-1][0] >= self._apart:
            self.track.append((seconds, self.decisions, self.regret))
            if len(self.track) >= MOST_MARKS:
                self.track = self.track[::2]
                self._apart *= 2


Row = tuple[float, str, int, int, float, float, float]  # when, city, arm, best arm, reward, regret, seconds
ROW_NAMES = ("seconds", "city", "arm", "best_arm", "reward", "regret", "latency_seconds")


class _Rounds:
    """The rounds of a world, drawn once and read by every city at its own pace."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._stream = play_out(world, [plan.seed], plan.drift_at)
        self._drawn: deque[tuple[Round, Instance]] = deque(maxlen=MOST_BEHIND)
        self._next = 0  # the round to draw next; the newest ones drawn are in `_drawn`
        self.asked = [0] * world.cities

    def take(self, city: int) -> tuple[Round, Instance]:
        wanted = max(self.asked[city], self._next - MOST_BEHIND)
        while self._next <= wanted:
            self._drawn.append(next(self._stream))
            self._next += 1
        self.asked[city] = wanted + 1
        return self._drawn[wanted - self._next]


class Drive:
    """Demand at live cities, until its plan is done or `stop` is called."""

    def __init__(
        self,
        callers: Sequence[Caller],
        towns: Sequence[Town],
        world: World,
        plan: Plan,
        *,
        decided: Callable[[Row], None] | None = None,
    ) -> None:
        self.plan = plan
        self.tallies = [Tally(town) for town in towns]
        self.callers = callers
        self._world = world
        self._rounds = _Rounds(world, plan)
        self._rng = np.random.default_rng([plan.seed, 77])
        self._decided = decided
        self._stop = asyncio.Event()
        self._enough = asyncio.Event()
        self._late: list[list[tuple[int, int, int, bytes]]] = [[] for _ in towns]  # heaps, by due decision
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fault: BaseException | None = None
        self.started = 0.0
        self.seconds = 0.0  # that it sent demand
        self._order = 0

    def stop(self) -> None:
        """Send no more demand, and end when what is under way has ended; told twice, at once."""
        if self._stop.is_set():
            self._enough.set()
        self._stop.set()

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started if self.started else 0.0

    async def run(self) -> list[Tally]:
        self.started = time.perf_counter()
        cities = range(len(self.tallies))
        rates = self.plan.rates
        if rates is not None and len(rates) not in (1, len(self.tallies)):
            raise InvalidParameter(f"give one rate, or one for each of {len(self.tallies)} cities")
        if self.plan.seconds:
            asyncio.get_running_loop().call_later(self.plan.seconds, self._stop.set)
        try:
            if rates is not None:
                await asyncio.gather(*(self._arrivals(i, rates[i % len(rates)]) for i in cities))
            else:
                await asyncio.gather(*(self._caller(i) for i in cities for _ in range(self.plan.concurrency)))
            self.seconds = self.elapsed
            await self._flush()
        finally:
            for task in self._tasks:
                task.cancel()
            await close_all(self.callers)
        if self._fault is not None:
            raise self._fault
        return self.tallies

    # Pace

    async def _arrivals(self, city: int, rate: float) -> None:
        """Calls leave at fixed times, whatever became of earlier ones."""
        number = 0
        while not self._over(city):
            due = self.started + number / rate
            wait = due - time.perf_counter()
            if wait > 0 and await self._stopped_within(wait):
                return
            number += 1
            self._spawn(self._decision(city, due, *self._rounds.take(city)))
            if number % 64 == 0:
                await asyncio.sleep(0)

    async def _caller(self, city: int) -> None:
        while not self._over(city):
            if not await self._decision(city, time.perf_counter(), *self._rounds.take(city)):
                await self._stopped_within(PAUSE_WHEN_UNREACHABLE)

    def _over(self, city: int) -> bool:
        most = self.plan.decisions
        return self._stop.is_set() or (most is not None and self._rounds.asked[city] >= most)

    async def _stopped_within(self, seconds: float) -> bool:
        if seconds < 0.002:
            await asyncio.sleep(seconds)
            return self._stop.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        """A fault of our own ends the drive and is raised at its end."""
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = self._fault or fault
            self._stop.set()
            self._enough.set()

    # A decision and its feedback

    async def _decision(self, city: int, due: float, now: Round, instance: Instance) -> bool:
        tally = self.tallies[city]
        tally.due += 1
        body = tally.town.body(now.context[0, city])
        try:
            answer = await self._call(city, "/price", body)
        except asyncio.CancelledError:
            tally.failures["/price: not answered by the end"] += 1
            tally.price_latency.add(time.perf_counter() - due)
            raise
        ended = time.perf_counter()
        tally.price_latency.add(ended - due)  # of a failure too: whoever waited for it has waited
        if answer is None:
            return False
        arm, decision_id = answer["arm"], answer["decision_id"]
        arms = np.zeros((1, self._world.cities), dtype=np.int64)
        arms[0, city] = arm
        expected = now.expected[0, city]
        reward = float(instance.reward(now, arms)[0, city])
        best = int(expected.argmax())
        regret = float(expected[best] - expected[arm])
        tally.decisions += 1
        tally.in_time += not self.seconds  # answered while demand was still being sent
        tally.regret += regret
        tally.reward += reward
        tally.chosen[answer["price"]] += 1
        tally.mark(ended - self.started)
        if self._decided is not None:
            self._decided((ended - self.started, tally.town.name, arm, best, reward, regret, ended - due))
        if self.plan.learn:
            feedback = {"decision_id": decision_id, "reward": reward}
            await self._answer_later(city, json.dumps(feedback).encode())
        return True

    async def _answer_later(self, city: int, feedback: bytes) -> None:
        plan, tally = self.plan, self.tallies[city]
        lost, twice, late = self._rng.random(3)
        if lost < plan.lose:
            tally.lost += 1
            return
        times = 2 if twice < plan.duplicate else 1
        tally.duplicated += times - 1
        if plan.delay.decisions:
            self._order += 1
            due = tally.decisions + int(late * (plan.delay.decisions + 1))
            for again in range(times):
                heapq.heappush(self._late[city], (due + again, self._order, again, feedback))
            while self._late[city] and self._late[city][0][0] <= tally.decisions:
                await self._late_feedback(city)
        elif plan.delay.seconds:
            wait = -plan.delay.seconds * float(np.log1p(-late))
            for again in range(times):
                self._spawn(self._feedback_after(city, feedback, again, wait * (1 + again)))
        else:
            for again in range(times):
                await self._feedback(city, feedback, again)

    async def _feedback_after(self, city: int, feedback: bytes, again: int, seconds: float) -> None:
        await self._stopped_within(seconds)
        await self._feedback(city, feedback, again)

    async def _late_feedback(self, city: int) -> None:
        _, _, again, feedback = heapq.heappop(self._late[city])
        await self._feedback(city, feedback, again)

    async def _feedback(self, city: int, body: bytes, again: int) -> None:
        """`again` counts from 0 how often this decision's feedback was sent before."""
        sent = time.perf_counter()
        tally = self.tallies[city]
        tally.feedback_sent += 1
        try:
            answer = await self._call(city, "/feedback", body)
        except asyncio.CancelledError:
            tally.failures["/feedback: not answered by the end"] += 1
            raise
        tally.feedback_latency.add(time.perf_counter() - sent)
        if answer is not None and answer["learned"] and not again:
            tally.learned += 1

    async def _call(self, city: int, path: str, body: bytes) -> Any:
        """The answer, or None and a failure counted."""
        failures = self.tallies[city].failures
        try:
            status, answer = await self.callers[city].call("POST", path, body)
        except CallFailed as fault:
            failures[f"{path}: {fault}"] += 1
            return None
        if status != 200:
            failures[f"{path}: {status}"] += 1
            self.tallies[city].explained.setdefault(f"{path}: {status}", _detail(answer))
            return None
        return json.loads(answer)

    # The end

    async def _flush(self) -> None:
        """Wait for what is under way and send the feedback that is still due, for so long and no longer."""
        self._stop.set()
        ending = asyncio.ensure_future(self._finish())
        enough = asyncio.ensure_future(self._enough.wait())
        await asyncio.wait({ending, enough}, timeout=FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, enough):
            task.cancel()
        await asyncio.gather(ending, enough, return_exceptions=True)
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        for city, late in enumerate(self._late):
            if late:
                self.tallies[city].failures["/feedback: not sent by the end"] += len(late)

    async def _finish(self) -> None:
        """Decisions under way first, for they still bring feedback; then what is late, some at a time."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await asyncio.gather(
            *(self._send_late(city) for city in range(len(self._late)) for _ in range(LATE_AT_A_TIME))
        )

    async def _send_late(self, city: int) -> None:
        while self._late[city]:
            await self._late_feedback(city)


def _detail(answer: bytes) -> str:
    """What a problem document says, so that a refusal explains itself."""
    try:
        return str(json.loads(answer)["detail"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""


async def drive(
    urls: Sequence[str],
    *,
    world: str,
    plan: Plan,
    key: str | None = None,
    heterogeneity: float = 0.0,
    decided: Callable[[Row], None] | None = None,
) -> Drive:
    """A drive at these addresses, ready to run."""
    callers = [Caller(url, key) for url in urls]
    try:
        towns = await survey(callers)
        names = [town.name for town in towns]
        if len(set(names)) < len(names):
            raise InvalidParameter(f"the same city twice: {', '.join(names)}")
        return Drive(callers, towns, world_for(towns, world, heterogeneity), plan, decided=decided)
    except BaseException:
        await close_all(callers)
        raise


async def close_all(callers: Sequence[Caller]) -> None:
    for caller in callers:
        caller.close()
    await asyncio.sleep(0)  # for the loop to close them

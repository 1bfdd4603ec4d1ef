"""The simulator client: sends synthetic demand to live cities, posts feedback, measures regret and latency.

Open loop: calls leave at a fixed rate whether or not earlier ones were answered, and latency counts from the
time a call was due, so that a slow city cannot hide its latency by slowing its callers down.
Closed loop: a number of callers, each of which sends its next call after the answer to its last one.
"""

import asyncio
import heapq
import json
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from pricemesh.errors import InvalidParameter
from pricemesh.lab.caller import Caller, CallFailed
from pricemesh.lab.plan import Plan
from pricemesh.lab.tally import Row, Tally
from pricemesh.lab.towns import Town, survey, world_for
from pricemesh.lab.worlds import Instance, Round, World, play_out

MAX_FLUSH_SECONDS = 15.0
LATE_FEEDBACK_CALLERS = 16
MAX_ROUNDS_BEHIND = 10_000  # that a city may lag behind the others before it skips rounds
UNREACHABLE_PAUSE_SECONDS = 0.5


class _Rounds:
    """The rounds of a world, drawn once and read by every city at its own pace."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._stream = play_out(world, [plan.seed], plan.drift_at)
        self._newest: deque[tuple[Round, Instance]] = deque(maxlen=MAX_ROUNDS_BEHIND)
        self._count = 0  # of the rounds drawn so far
        self.positions = [0] * world.cities  # the next round of each city

    def take(self, city: int) -> tuple[Round, Instance]:
        index = max(self.positions[city], self._count - MAX_ROUNDS_BEHIND)
        while self._count <= index:
            self._newest.append(next(self._stream))
            self._count += 1
        self.positions[city] = index + 1
        return self._newest[index - self._count]


class Drive:
    """Sends demand to live cities until its plan is complete or `stop` is called."""

    def __init__(
        self,
        callers: Sequence[Caller],
        towns: Sequence[Town],
        world: World,
        plan: Plan,
        *,
        on_decision: Callable[[Row], None] | None = None,
    ) -> None:
        self.plan = plan
        self.tallies = [Tally(town) for town in towns]
        self.callers = callers
        self._world = world
        self._rounds = _Rounds(world, plan)
        self._rng = np.random.default_rng([plan.seed, 77])
        self._on_decision = on_decision
        self._stop = asyncio.Event()
        self._abort = asyncio.Event()
        # For each city a heap of late feedback: (due decision, order, repetition, body).
        self._late_feedback: list[list[tuple[int, int, int, bytes]]] = [[] for _ in towns]
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fault: BaseException | None = None
        self.started = 0.0
        self.seconds = 0.0  # how long it sent demand; 0 while it still does
        self._order = 0

    def stop(self) -> None:
        """Send no more demand and end when all calls are answered. A second call ends the drive at once."""
        if self._stop.is_set():
            self._abort.set()
        self._stop.set()

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started if self.started else 0.0

    async def run(self) -> list[Tally]:
        self.started = time.perf_counter()
        cities = range(len(self.tallies))
        rates = self.plan.rates
        if rates is not None and len(rates) not in (1, len(self.tallies)):
            raise InvalidParameter(f"--rate takes one rate, or one for each of {len(self.tallies)} cities")
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
        """Calls leave at fixed times, whether or not earlier ones were answered."""
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
                await self._stopped_within(UNREACHABLE_PAUSE_SECONDS)

    def _over(self, city: int) -> bool:
        limit = self.plan.decisions
        return self._stop.is_set() or (limit is not None and self._rounds.positions[city] >= limit)

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
        """An error of this client itself ends the drive, which raises it at its end."""
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = self._fault or fault
            self._stop.set()
            self._abort.set()

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
        tally.price_latency.add(ended - due)  # of a failed call too: its caller waited as well
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
        tally.prices[answer["price"]] += 1
        tally.mark(ended - self.started)
        if self._on_decision is not None:
            self._on_decision((ended - self.started, tally.town.name, arm, best, reward, regret, ended - due))
        if self.plan.learn:
            await self._answer_later(city, tally.town.feedback(decision_id, reward))
        return True

    async def _answer_later(self, city: int, feedback: bytes) -> None:
        plan, tally = self.plan, self.tallies[city]
        loss, duplicate, delay = self._rng.random(3)
        if loss < plan.lose:
            tally.losses += 1
            return
        times = 2 if duplicate < plan.duplicate else 1
        tally.duplicates += times - 1
        if plan.delay.decisions:
            self._order += 1
            due = tally.decisions + int(delay * (plan.delay.decisions + 1))
            for again in range(times):
                heapq.heappush(self._late_feedback[city], (due + again, self._order, again, feedback))
            while self._late_feedback[city] and self._late_feedback[city][0][0] <= tally.decisions:
                await self._send_next_late(city)
        elif plan.delay.seconds:
            wait = -plan.delay.seconds * float(np.log1p(-delay))
            for again in range(times):
                self._spawn(self._feedback_after(city, feedback, again, wait * (1 + again)))
        else:
            for again in range(times):
                await self._feedback(city, feedback, again)

    async def _feedback_after(self, city: int, feedback: bytes, again: int, seconds: float) -> None:
        await self._stopped_within(seconds)
        await self._feedback(city, feedback, again)

    async def _send_next_late(self, city: int) -> None:
        _, _, again, feedback = heapq.heappop(self._late_feedback[city])
        await self._feedback(city, feedback, again)

    async def _feedback(self, city: int, body: bytes, again: int) -> None:
        """`again` is how often this decision's feedback was sent before."""
        started = time.perf_counter()
        tally = self.tallies[city]
        tally.feedback_calls += 1
        try:
            answer = await self._call(city, "/feedback", body)
        except asyncio.CancelledError:
            tally.failures["/feedback: not answered by the end"] += 1
            raise
        tally.feedback_latency.add(time.perf_counter() - started)
        if answer is not None and answer["learned"] and not again:
            tally.lessons += 1

    async def _call(self, city: int, path: str, body: bytes) -> Any:
        """The answer; None after a failure, which is counted."""
        failures = self.tallies[city].failures
        try:
            status, answer = await self.callers[city].call("POST", path, body)
        except CallFailed as fault:
            failures[f"{path}: {fault}"] += 1
            return None
        if status != 200:
            failures[f"{path}: {status}"] += 1
            self.tallies[city].details.setdefault(f"{path}: {status}", _detail(answer))
            return None
        return json.loads(answer)

    # The end

    async def _flush(self) -> None:
        """Wait for open calls and send the feedback that is still due, for at most MAX_FLUSH_SECONDS."""
        self._stop.set()
        ending = asyncio.ensure_future(self._finish())
        abort = asyncio.ensure_future(self._abort.wait())
        await asyncio.wait({ending, abort}, timeout=MAX_FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, abort):
            task.cancel()
        await asyncio.gather(ending, abort, return_exceptions=True)
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        for city, heap in enumerate(self._late_feedback):
            if heap:
                self.tallies[city].failures["/feedback: not sent by the end"] += len(heap)

    async def _finish(self) -> None:
        """Open decisions first, because they produce feedback; then the late feedback, a few calls at a
        time."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await asyncio.gather(
            *(
                self._send_late(city)
                for city in range(len(self._late_feedback))
                for _ in range(LATE_FEEDBACK_CALLERS)
            )
        )

    async def _send_late(self, city: int) -> None:
        while self._late_feedback[city]:
            await self._send_next_late(city)


def _detail(answer: bytes) -> str:
    """The detail of a problem document; empty if the answer is none."""
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
    on_decision: Callable[[Row], None] | None = None,
) -> Drive:
    """A drive of the cities at these addresses. `Drive.run` starts it."""
    callers = [Caller(url, key) for url in urls]
    try:
        towns = await survey(callers)
        names = [town.name for town in towns]
        if len(set(names)) < len(names):
            raise InvalidParameter(f"the same city is given twice: {', '.join(names)}")
        return Drive(callers, towns, world_for(towns, world, heterogeneity), plan, on_decision=on_decision)
    except BaseException:
        await close_all(callers)
        raise


async def close_all(callers: Sequence[Caller]) -> None:
    for caller in callers:
        caller.close()
    await asyncio.sleep(0)  # for the loop to close them

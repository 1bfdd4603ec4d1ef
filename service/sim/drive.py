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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.core.arrays import Array, not_negative
from service.errors import InvalidParameter
from service.sim.caller import Caller, CallFailed
from service.sim.latency import Latencies
from service.sim.market import Market
from service.sim.worlds import Instance, Linear, Round, World

FLUSH_SECONDS = 15.0
MOST_MARKS = 4000
MOST_BEHIND = 10_000  # rounds a city may be behind the others before it skips some
PAUSE_WHEN_UNREACHABLE = 0.5


@dataclass(frozen=True)
class Town:
    """A city as it describes itself."""

    url: str
    name: str
    prices: tuple[float, ...]
    shared: tuple[dict[str, Any], ...]
    local: tuple[dict[str, Any], ...]

    def body(self, x: Array, decision_id: str | None = None) -> bytes:
        values = x.tolist()
        shared = dict(zip((item["name"] for item in self.shared), values, strict=False))
        local = dict(zip((item["name"] for item in self.local), values[len(self.shared) :], strict=False))
        asked: dict[str, Any] = {"shared": shared, "local": local}
        return json.dumps(asked | ({"decision_id": decision_id} if decision_id else {})).encode()


async def survey(callers: Sequence[Caller]) -> list[Town]:
    """What each city has: arms and features, from its /state."""
    towns = []
    for caller in callers:
        try:
            status, body = await caller.call("GET", "/state")
        except CallFailed as fault:
            raise CallFailed(f"{caller.url}: {fault}") from None
        if status != 200:
            raise CallFailed(f"{caller.url}/state answers {status}: {body[:300].decode(errors='replace')}")
        state = json.loads(body)
        features = state["features"]
        prices = tuple(arm["price"] for arm in state["arms"])
        towns.append(
            Town(caller.url, state["city"], prices, tuple(features["shared"]), tuple(features["local"]))
        )
    return towns


def world_for(towns: Sequence[Town], name: str, heterogeneity: float = 0.0) -> World:
    """The world in which these cities can sell."""
    first = towns[0]
    for town in towns:
        if town.prices != first.prices or town.shared != first.shared:
            raise InvalidParameter(f"{town.name} and {first.name} differ in prices or shared features")
    if name == "market":
        return _market(towns, heterogeneity)
    for town in towns:
        for item in (*town.shared, *town.local):
            if item["min"] > -1 or item["max"] < 1:
                raise InvalidParameter(
                    f"the linear world has features between -1 and 1, but {town.name} holds {item['name']} "
                    f"to [{item['min']:g}, {item['max']:g}]: try --world market, or widen it"
                )
    return Linear(
        cities=len(towns),
        arms=len(first.prices),
        shared=len(first.shared),
        local=tuple(len(town.local) for town in towns),
        heterogeneity=heterogeneity,
    )


def _market(towns: Sequence[Town], heterogeneity: float) -> Market:
    first = towns[0]
    widths = {len(town.local) for town in towns}
    world = Market(
        cities=len(towns),
        arms=len(first.prices),
        shared=len(first.shared),
        local=max(widths),
        heterogeneity=heterogeneity,
    )
    shared, local = world.feature_names
    for town in towns:
        has = tuple(item["name"] for item in town.shared), tuple(item["name"] for item in town.local)
        if has != (shared, local) or town.prices != world.prices:
            raise InvalidParameter(
                f"the market world has the features {', '.join(shared + local)} and the prices "
                f"{list(world.prices)}; {town.name} has {', '.join(has[0] + has[1])} and "
                f"{list(town.prices)}. deploy/city.toml is a city of that world; --world linear suits any"
            )
    return world


@dataclass(frozen=True)
class Delay:
    """How late feedback comes: exponential in seconds, or uniform in decisions."""

    seconds: float = 0.0
    decisions: int = 0

    @classmethod
    def parse(cls, text: str) -> "Delay":
        """`5s` is exponential with mean 5 seconds; `1000` is up to 1000 decisions late."""
        try:
            delay = cls(seconds=float(text[:-1])) if text.endswith("s") else cls(decisions=int(text))
        except ValueError:
            raise InvalidParameter(f"a delay is 5s (seconds) or 1000 (decisions), not {text!r}") from None
        not_negative("delay", delay.seconds + delay.decisions)
        return delay


@dataclass(frozen=True)
class Plan:
    """What to send."""

    seed: int = 0
    rates: tuple[float, ...] | None = None  # calls a second to each city: open loop
    concurrency: int = 1  # callers at each city: closed loop, where there are no rates
    seconds: float | None = None
    decisions: int | None = None  # for each city
    delay: Delay = Delay()
    lose: float = 0.0
    duplicate: float = 0.0
    drift_at: int | None = None  # after so many decisions of a city the world is another
    learn: bool = True

    def __post_init__(self) -> None:
        for name in ("lose", "duplicate"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidParameter(f"--{name} is a share between 0 and 1, not {getattr(self, name)}")
        if self.rates is not None and min(self.rates) <= 0:
            raise InvalidParameter("--rate counts calls a second: above 0")
        if self.concurrency < 1:
            raise InvalidParameter("--concurrency counts callers: 1 or more")


@dataclass
class Tally:
    """What came of it in one city."""

    town: Town
    decisions: int = 0
    regret: float = 0.0
    reward: float = 0.0
    chosen: Counter[float] = field(default_factory=Counter)
    price_latency: Latencies = field(default_factory=Latencies)
    feedback_latency: Latencies = field(default_factory=Latencies)
    learned: int = 0
    lost: int = 0
    duplicated: int = 0
    failures: Counter[str] = field(default_factory=Counter)
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
        self.instances: list[Instance] = [world.instance([plan.seed])]
        if plan.drift_at is not None:
            self.instances.append(world.instance([plan.seed + 1_000_003]))
        self._streams = [instance.rounds() for instance in self.instances]
        self._drift_at = plan.drift_at
        self._drawn: deque[tuple[Round, Instance]] = deque(maxlen=MOST_BEHIND)
        self._next = 0  # the round to draw next; the newest ones drawn are in `_drawn`
        self.asked = [0] * world.cities

    def take(self, city: int) -> tuple[Round, Instance]:
        wanted = max(self.asked[city], self._next - MOST_BEHIND)
        while self._next <= wanted:
            which = 1 if self._drift_at is not None and self._next >= self._drift_at else 0
            self._drawn.append((next(self._streams[which]), self.instances[which]))
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
        self._callers = callers
        self._world = world
        self._rounds = _Rounds(world, plan)
        self._rng = np.random.default_rng([plan.seed, 77])
        self._decided = decided
        self._stop = asyncio.Event()
        self._late: list[list[tuple[int, int, bytes]]] = [[] for _ in towns]  # heaps, by due decision
        self._tasks: set[asyncio.Task[None]] = set()
        self.started = 0.0
        self.seconds = 0.0  # that it sent demand
        self._order = 0

    def stop(self) -> None:
        self._stop.set()

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started if self.started else 0.0

    async def run(self) -> list[Tally]:
        self.started = time.perf_counter()
        if self.plan.seconds:
            asyncio.get_running_loop().call_later(self.plan.seconds, self._stop.set)
        cities = range(len(self.tallies))
        if self.plan.rates is not None:
            rates = self.plan.rates * len(self.tallies) if len(self.plan.rates) == 1 else self.plan.rates
            if len(rates) != len(self.tallies):
                raise InvalidParameter(f"give one rate, or one for each of {len(self.tallies)} cities")
            await asyncio.gather(*(self._arrivals(i, rates[i]) for i in cities))
        else:
            await asyncio.gather(*(self._caller(i) for i in cities for _ in range(self.plan.concurrency)))
        self.seconds = self.elapsed
        await self._flush()
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

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # A decision and its feedback

    async def _decision(self, city: int, due: float, now: Round, instance: Instance) -> bool:
        tally = self.tallies[city]
        body = tally.town.body(now.context[0, city])
        answer = await self._call(city, "/price", body)
        if answer is None:
            return False
        ended = time.perf_counter()
        arm, decision_id = answer["arm"], answer["decision_id"]
        arms = np.zeros((1, self._world.cities), dtype=np.int64)
        arms[0, city] = arm
        expected = now.expected[0, city]
        reward = float(instance.reward(now, arms)[0, city])
        best = int(expected.argmax())
        regret = float(expected[best] - expected[arm])
        tally.decisions += 1
        tally.regret += regret
        tally.reward += reward
        tally.chosen[answer["price"]] += 1
        tally.price_latency.add(ended - due)
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
                heapq.heappush(self._late[city], (due + again, self._order, feedback))
            while self._late[city] and self._late[city][0][0] <= tally.decisions:
                await self._feedback(city, heapq.heappop(self._late[city])[2], time.perf_counter())
        elif plan.delay.seconds:
            wait = -plan.delay.seconds * float(np.log1p(-late))
            for again in range(times):
                self._spawn(self._feedback_after(city, feedback, wait * (1 + again)))
        else:
            for _ in range(times):
                await self._feedback(city, feedback, time.perf_counter())

    async def _feedback_after(self, city: int, feedback: bytes, seconds: float) -> None:
        await self._stopped_within(seconds)
        await self._feedback(city, feedback, time.perf_counter())

    async def _feedback(self, city: int, body: bytes, due: float) -> None:
        answer = await self._call(city, "/feedback", body)
        if answer is not None:
            tally = self.tallies[city]
            tally.learned += 1
            tally.feedback_latency.add(time.perf_counter() - due)

    async def _call(self, city: int, path: str, body: bytes) -> Any:
        """The answer, or None and a failure counted."""
        try:
            status, answer = await self._callers[city].call("POST", path, body)
        except CallFailed as fault:
            self.tallies[city].failures[f"{path}: {fault}"] += 1
            return None
        if status != 200:
            self.tallies[city].failures[f"{path}: {status}"] += 1
            return None
        return json.loads(answer)

    async def _flush(self) -> None:
        """Send the feedback that is still due, and wait for what is under way."""
        for city, late in enumerate(self._late):
            while late:
                await self._feedback(city, heapq.heappop(late)[2], time.perf_counter())
        self._stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FLUSH_SECONDS)
        for task in self._tasks:
            task.cancel()
        await close_all(self._callers)


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

"""The simulator client against real cities: its counts, and that it does not hide latency."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import httptools
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricemesh.city.settings import Settings
from pricemesh.errors import InvalidParameter
from pricemesh.lab.caller import Caller, CallFailed
from pricemesh.lab.demo import city_settings
from pricemesh.lab.drive import Drive, close_all, drive
from pricemesh.lab.idle import ANSWER
from pricemesh.lab.latency import Latencies
from pricemesh.lab.market import Market
from pricemesh.lab.plan import Delay, Plan
from pricemesh.lab.tally import Row
from pricemesh.lab.towns import Town, survey, world_for
from pricemesh.lab.worlds import Linear
from tests.running import RunningCity


@given(
    st.lists(st.floats(1e-6, 1000), min_size=1, max_size=200),
    st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_percentile_is_within_one_percent(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    for each in seconds:
        latencies.add(each)
    exact = np.sort(seconds)[max(0, int(np.ceil(share * len(seconds))) - 1)]
    assert latencies.at(share) == pytest.approx(exact, rel=0.01)
    assert latencies.longest == max(seconds)


def test_latencies_add_up() -> None:
    one, other = Latencies(), Latencies()
    for i in range(1, 101):
        (one if i % 2 else other).add(i / 1000)
    one.merge(other)
    assert one.count == 100
    assert one.milliseconds()["p50"] == pytest.approx(50, rel=0.01)
    assert [round(beyond) for beyond, _ in one.curve()][-1] == 100


@pytest.mark.parametrize(("text", "delay"), [("5s", Delay(5.0)), ("0", Delay()), ("1000", Delay(0.0, 1000))])
def test_delays_are_seconds_or_decisions(text: str, delay: Delay) -> None:
    assert Delay.parse(text) == delay
    for wrong in ("x", "5m", "-1s", ""):
        with pytest.raises(InvalidParameter):
            Delay.parse(wrong)


def start(tmp_path: Path, world: Linear | Market, **sections: Any) -> list[RunningCity]:
    settings = [
        city_settings(world, f"city{i}", tmp_path / f"{i}.db", "netpool", [], "k1:" + "s" * 40)
        for i in range(world.cities)
    ]
    return [RunningCity(Settings.model_validate({**each, **sections})) for each in settings]


def run(cities: list[RunningCity], world: str, plan: Plan) -> tuple[Drive, list[Row]]:
    rows: list[Row] = []

    async def go() -> Drive:
        demand = await drive([city.url for city in cities], world=world, plan=plan, on_decision=rows.append)
        await demand.run()
        return demand

    return asyncio.run(go()), rows


@pytest.mark.parametrize(
    "world", [Linear(cities=2, arms=3, shared=3, local=1), Market(cities=2)], ids=["linear", "market"]
)
def test_regret_is_what_the_world_says(tmp_path: Path, world: Linear | Market) -> None:
    cities = start(tmp_path, world)
    name = "linear" if isinstance(world, Linear) else "market"
    demand, rows = run(cities, name, Plan(seed=4, decisions=40, seconds=60))
    for i, (city, tally) in enumerate(zip(cities, demand.tallies, strict=True)):
        decisions = city.http.get("/decisions?limit=500").json()["decisions"][::-1]
        assert len(decisions) == tally.decisions == tally.lessons == city.state()["version"] == 40
        assert tally.failures == {}
        instance = world.instance([4])
        regret = 0.0
        for record, now in zip(decisions, instance.rounds(), strict=False):
            x = [*record["context"]["shared"].values(), *record["context"]["local"].values()]
            np.testing.assert_allclose(x, now.context[0, i])
            arms = np.full((1, 2), record["arm"])
            reward, feedback = instance.reward(now, arms)[0, i], record["feedback"]
            if isinstance(world, Market):  # its rewards are shares of the highest price; cities learn money
                assert feedback["sold"] == float(reward > 0)
                reward *= world.prices[-1]
            assert feedback["reward"] == pytest.approx(reward)
            regret += now.expected[0, i].max() - now.expected[0, i, record["arm"]]
        assert tally.regret == pytest.approx(regret)
        assert sum(row[5] for row in rows if row[1] == f"city{i}") == pytest.approx(regret)
        city.stop()


@pytest.mark.parametrize("delay", ["0", "25", "0.05s"])
def test_late_lost_and_doubled_feedback_is_learned_once_each(tmp_path: Path, delay: str) -> None:
    cities = start(tmp_path, Market(cities=2))
    plan = Plan(
        seed=1, decisions=150, seconds=60, concurrency=4, delay=Delay.parse(delay), lose=0.2, duplicate=0.1
    )
    demand, _ = run(cities, "market", plan)
    for city, tally in zip(cities, demand.tallies, strict=True):
        assert tally.failures == {}
        assert tally.decisions == 150
        assert 10 < tally.losses < 60
        assert 2 < tally.duplicates < 35
        assert tally.feedback_calls == 150 - tally.losses + tally.duplicates
        assert tally.lessons == 150 - tally.losses
        assert city.state()["version"] == city.state()["feedback"] == 150 - tally.losses
        city.stop()


def test_the_truth_is_drawn_anew_after_drift_at_decisions(tmp_path: Path) -> None:
    world = Linear(cities=1, arms=3, shared=3, local=1)
    (city,) = start(tmp_path, world)
    _, rows = run([city], "linear", Plan(seed=2, decisions=60, seconds=60, drift_at=30))
    city.stop()
    before, after = world.instance([2]), world.instance([2 + 1_000_003])
    best = [int(now.expected[0, 0].argmax()) for now, _ in zip(before.rounds(), range(30), strict=False)]
    best += [int(now.expected[0, 0].argmax()) for now, _ in zip(after.rounds(), range(30), strict=False)]
    assert [row[3] for row in rows] == best


class Stalling(asyncio.Protocol):
    """Answers at once, but blocks for half a second at its hundredth call."""

    calls = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        Stalling.calls += 1
        if Stalling.calls == 100:
            time.sleep(0.5)
        self._transport.write(ANSWER)


def test_a_stall_delays_every_call_that_was_due_meanwhile() -> None:
    """At 100 calls a second, half a second's stall delays some fifty calls; a client that waits before it
    asks again would see one."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(Stalling, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def slow_calls(**pace: object) -> int:
        Stalling.calls = 0
        feature = {"name": "x", "min": -1.0, "max": 1.0}
        town = Town(url, "stall", (1.0, 2.0), (feature,), ())
        plan = Plan(decisions=200, seconds=20, learn=False, **pace)  # type: ignore[arg-type]
        demand = Drive([Caller(url)], [town], world_for([town], "linear"), plan)
        (tally,) = await demand.run()
        assert tally.decisions == 200
        counts = tally.price_latency
        return sum(counts.at((number + 0.5) / 200) > 0.1 for number in range(200))

    try:
        closed_loop = asyncio.run(slow_calls(concurrency=1))
        open_loop = asyncio.run(slow_calls(rates=(100.0,)))
    finally:
        time.sleep(0.1)  # for the server to see the connections close
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()
    assert open_loop >= 30
    assert closed_loop <= open_loop / 5


def test_cities_or_plans_that_cannot_be_driven_are_refused_with_the_reason(tmp_path: Path) -> None:
    world = Market(cities=2)
    cities = start(tmp_path, world)
    urls = [city.url for city in cities]
    with pytest.raises(InvalidParameter, match="twice"):
        asyncio.run(drive([urls[0], urls[0]], world="market", plan=Plan()))

    async def survey_cities() -> list[Town]:
        callers = [Caller(url) for url in urls]
        try:
            return await survey(callers)
        finally:
            await close_all(callers)

    towns = asyncio.run(survey_cities())
    other = Town("http://x", "x", (1.0, 2.0), towns[0].shared, towns[0].local)
    with pytest.raises(InvalidParameter, match="differ"):
        world_for([towns[0], other], "market")
    with pytest.raises(InvalidParameter, match=r"deploy/city\.toml"):
        world_for([other], "market")
    narrow = Town("http://y", "y", (1.0, 2.0), ({"name": "x", "min": 0.5, "max": 1.0},), ())
    with pytest.raises(InvalidParameter, match="widen"):
        world_for([narrow], "linear")
    for wrong in (
        {"lose": 2.0},
        {"duplicate": -1.0},
        {"rates": (0.0,)},
        {"rates": (float("nan"),)},
        {"rates": (float("inf"),)},
        {"concurrency": 0},
        {"seconds": float("nan")},
        {"seconds": -5.0},
        {"seed": -1},
        {"decisions": 0},
        {"drift_at": -7},
    ):
        with pytest.raises(InvalidParameter):
            Plan(**wrong)
    for city in cities:
        city.stop()
    with pytest.raises(CallFailed, match="http"):
        asyncio.run(drive(urls[:1], world="market", plan=Plan()))


def test_a_city_that_goes_away_is_counted_and_comes_back(tmp_path: Path) -> None:
    (city,) = start(tmp_path, Market(cities=1))
    port = int(city.url.rpartition(":")[2])

    async def go() -> Drive:
        demand = await drive([city.url], world="market", plan=Plan(rates=(50.0,), seconds=4))
        task = asyncio.ensure_future(demand.run())
        await asyncio.sleep(0.5)
        await asyncio.to_thread(city.stop)
        again = await asyncio.to_thread(RunningCity, city.pricing.settings, port)
        await asyncio.sleep(1)
        demand.stop()
        await task
        await asyncio.to_thread(again.stop)
        return demand

    (tally,) = asyncio.run(go()).tallies
    assert tally.decisions > 30
    assert sum(tally.failures.values()) > 0
    assert tally.due == tally.decisions + sum(
        n for failure, n in tally.failures.items() if "/price" in failure
    )


def test_a_city_whose_features_are_never_negative_can_be_driven(tmp_path: Path) -> None:
    (city,) = start(tmp_path, Market(cities=1))
    demand, _ = run([city], "linear", Plan(decisions=20, seconds=60))
    assert demand.tallies[0].lessons == 20
    assert demand.tallies[0].failures == {}
    city.stop()


class Hanging(Stalling):
    """Answers the first 20 calls only."""

    def on_message_complete(self) -> None:
        Hanging.calls += 1
        if Hanging.calls <= 20:
            self._transport.write(ANSWER)


def test_calls_without_an_answer_are_counted_and_a_second_stop_ends_the_drive() -> None:
    async def go() -> tuple[Drive, float]:
        server = await asyncio.get_running_loop().create_server(Hanging, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        town = Town(url, "hang", (1.0, 2.0), ({"name": "x", "min": -1.0, "max": 1.0},), ())
        plan = Plan(rates=(100.0,), seconds=1.0, learn=False)
        demand = Drive([Caller(url)], [town], world_for([town], "linear"), plan)
        task = asyncio.ensure_future(demand.run())
        await asyncio.sleep(1.5)
        demand.stop()
        stopped = time.perf_counter()
        await task
        server.close()
        return demand, time.perf_counter() - stopped

    Hanging.calls = 0
    demand, seconds = asyncio.run(go())
    (tally,) = demand.tallies
    assert seconds < 5
    assert tally.decisions == tally.in_time == 20
    assert 80 <= tally.due <= 101
    assert tally.failures == {"/price: not answered by the end": tally.due - 20}
    assert tally.price_latency.count == tally.due  # calls without an answer count, too
    assert tally.price_latency.at(0.5) > 0.3


def test_an_error_of_the_client_ends_the_drive_and_is_raised(tmp_path: Path) -> None:
    (city,) = start(tmp_path, Market(cities=1))

    def full(_: Row) -> None:
        raise OSError("disk is full")

    async def go() -> None:
        await (
            await drive([city.url], world="market", plan=Plan(rates=(50.0,), seconds=30), on_decision=full)
        ).run()

    started = time.perf_counter()
    with pytest.raises(OSError, match="disk is full"):
        asyncio.run(go())
    assert time.perf_counter() - started < 10
    city.stop()


def test_only_feedback_that_was_learned_counts_as_a_lesson(tmp_path: Path) -> None:
    (city,) = start(tmp_path, Market(cities=1))
    city.http.post("/admin/freeze", json={})
    demand, _ = run([city], "market", Plan(decisions=10, seconds=30, duplicate=1.0))
    assert (demand.tallies[0].lessons, demand.tallies[0].feedback_calls) == (0, 20)
    city.stop()


def test_a_refusal_is_listed_with_the_detail_of_its_problem_document(tmp_path: Path) -> None:
    (city,) = start(tmp_path, Market(cities=1), reward={"kind": "value", "largest": 1e-9})
    demand, _ = run([city], "market", Plan(decisions=30, seconds=30))
    city.stop()
    (tally,) = demand.tallies
    assert set(tally.failures) == {"/feedback: 422"}
    assert tally.details["/feedback: 422"].startswith("reward: at most 1e-09")

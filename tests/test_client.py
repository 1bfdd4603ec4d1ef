"""The Python client, against a live city and against networks that fail."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from pricemesh.client import AsyncCity, City, CityError, CityUnreachable, Retries
from pricemesh.errors import InvalidParameter
from pricemesh.runtime import Disk, Runtime
from tests.running import CONTEXT, RunningCity, settings_for

QUICK = Retries(attempts=4, first_pause_seconds=0.001)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    yield city.url
    city.stop()


def test_price_and_feedback_in_code_that_blocks(url: str) -> None:
    with City(url) as city:
        decision = city.price(CONTEXT["shared"], CONTEXT["local"], subject="ann")
        assert city.feedback(decision.decision_id, reward=0.5).learned
        several = city.prices([(CONTEXT["shared"], CONTEXT["local"])] * 3)
        outcomes = city.feedbacks(reward=[(d.decision_id, 1.0) for d in several] + [("nobody", 1.0)])
        assert [outcome.status for outcome in outcomes] == [200, 200, 200, 404]
        assert city.decision(decision.decision_id).subject == "ann"
        assert city.state().version == 4
        with pytest.raises(CityError, match="409 Conflict") as refused:
            city.feedback(decision.decision_id, reward=0.6)
        assert refused.value.problem.type.endswith("other-reward")


def test_a_city_of_purchases_is_told_what_was_sold(tmp_path: Path) -> None:
    reward = {"kind": "purchase", "cost": 1.0}
    server = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", reward=reward))
    with City(server.url) as city:
        decision = city.price(CONTEXT["shared"], CONTEXT["local"])
        assert decision.propensity == 1.0
        receipt = city.feedback(decision.decision_id, sold=1)
        assert (receipt.sold, receipt.reward) == (1.0, decision.price - 1.0)
        other = city.price(CONTEXT["shared"], CONTEXT["local"])
        assert [outcome.status for outcome in city.feedbacks(sold=[(other.decision_id, 0)])] == [200]
        feedback = city.decision(decision.decision_id).feedback
        assert feedback is not None
        assert (feedback.sold, feedback.reward) == (1.0, decision.price - 1.0)
        assert city.state().reward.kind == "purchase"
        with pytest.raises(CityError, match='this city learns from sales: send "sold"'):
            city.feedback(decision.decision_id, reward=1.0)
    server.stop()


def test_feedback_is_either_what_was_sold_or_the_reward() -> None:
    async def use() -> None:
        async with AsyncCity("http://city") as city:
            for amounts in ({}, {"sold": 1, "reward": 1.0}):
                with pytest.raises(TypeError, match="give either sold="):
                    await city.feedback("d1", **amounts)

    asyncio.run(use())
    with City("http://city") as city:
        with pytest.raises(TypeError, match="give either sold="):
            city.feedbacks()
        with pytest.raises(TypeError, match="give either sold="):
            city.feedbacks(sold=[("d1", 1)], reward=[("d1", 1.0)])


def test_decisions_are_read_page_by_page(url: str) -> None:
    with City(url) as city:
        several = [city.prices([(CONTEXT["shared"], CONTEXT["local"])] * 301) for _ in range(2)]
        ids = [decision.decision_id for batch in several for decision in batch][::-1]
        records = list(city.decisions())
        assert [record.decision_id for record in records] == ids  # 602: two pages
        newest = records[0].made_at
        later = [record.decision_id for record in records if record.made_at >= newest]
        assert [record.decision_id for record in city.decisions(since=newest)] == later
        assert list(city.decisions(until=records[-1].made_at)) == []
        first_arm = [record.decision_id for record in records if record.arm == 0]
        assert [record.decision_id for record in city.decisions(arm=0)] == first_arm

    async def read() -> list[str]:
        async with AsyncCity(url) as city:
            return [record.decision_id async for record in city.decisions()]

    assert asyncio.run(read()) == ids


def test_price_and_feedback_in_code_that_awaits(url: str) -> None:
    async def use() -> int:
        async with AsyncCity(url) as city:
            decisions = await asyncio.gather(
                *(city.price(CONTEXT["shared"], CONTEXT["local"]) for _ in range(5))
            )
            await city.feedbacks(reward=[(d.decision_id, 0.1) for d in decisions])
            more = await city.prices([(CONTEXT["shared"], CONTEXT["local"])])
            await city.feedback(more[0].decision_id, reward=0.2)
            await city.decision(more[0].decision_id)
            return (await city.state()).version

    assert asyncio.run(use()) == 6


def test_a_price_is_retried_under_the_same_decision_id() -> None:
    bodies: list[bytes] = []

    def flaky(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        if len(bodies) == 1:
            raise httpx.ConnectError("refused")
        if len(bodies) == 2:
            return httpx.Response(503, headers={"Retry-After": "0"})
        body = {
            "decision_id": "x",
            "city": "lisbon",
            "arm": 0,
            "price": 8.0,
            "estimate": 0.0,
            "radius": 1.0,
            "policy": "netpool",
            "limited_by": [],
            "propensity": 1.0,
        }
        return httpx.Response(200, json=body)

    with City("http://city", transport=httpx.MockTransport(flaky), retries=QUICK) as city:
        city.price({"rain": 1.0})
    assert len(bodies) == 3
    assert bodies[0] == bodies[1] == bodies[2]
    assert b"decision_id" in bodies[0]


def test_a_refusal_is_not_retried_and_an_absent_city_is_given_up_on() -> None:
    calls = 0

    def refuse(_request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        return httpx.Response(404, text="not a city")

    city = City("http://city", transport=httpx.MockTransport(refuse), retries=QUICK)
    with city, pytest.raises(CityError, match="404"):
        city.state()
    assert calls == 1
    absent = City("http://127.0.0.1:1", retries=QUICK, timeout_seconds=0.5)
    with absent, pytest.raises(CityUnreachable, match="GET /state"):
        absent.state()


def test_code_that_awaits_retries_as_code_that_blocks_does() -> None:
    calls = 0

    def flaky(_request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        if calls < 4:
            return httpx.Response(503, headers={"Retry-After": "0"})
        return httpx.Response(200, json={"told": 3})

    async def leave() -> int:
        async with AsyncCity("http://city", transport=httpx.MockTransport(flaky), retries=QUICK) as city:
            return await city.leave()

    assert asyncio.run(leave()) == 3
    assert calls == 4


def test_pauses_double_and_obey_retry_after() -> None:
    retries = Retries(attempts=3, first_pause_seconds=1.0)
    lost = httpx.ConnectError("refused")
    first, second = retries.pause_seconds(0, lost), retries.pause_seconds(1, lost)
    assert first is not None
    assert 0.5 <= first <= 1.5
    assert second is not None
    assert 1.0 <= second <= 3.0
    assert retries.pause_seconds(2, lost) is None
    assert retries.pause_seconds(0, httpx.Response(503, headers={"Retry-After": "7"})) == 7.0
    assert retries.pause_seconds(0, httpx.Response(503, headers={"Retry-After": "86400"})) == 30.0
    assert retries.pause_seconds(0, httpx.Response(404)) is None


class LosingAnswers(Disk):
    """The next commits happen, and their answers get lost."""

    def __init__(self) -> None:
        self.lost_answers = 0

    def after_commit(self) -> None:
        if self.lost_answers:
            self.lost_answers -= 1
            raise OperationalError("commit", {}, Exception("the answer got lost"))


def test_a_call_in_doubt_is_made_again_and_counts_once(tmp_path: Path) -> None:
    disk = LosingAnswers()
    running = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"), runtime=Runtime(disk=disk))

    async def learn(decision_id: str) -> bool:
        async with AsyncCity(running.url, retries=QUICK) as city:
            return (await city.feedback(decision_id, reward=0.5)).learned

    with City(running.url, retries=QUICK) as city:
        disk.lost_answers = 1
        decision = city.price(CONTEXT["shared"], CONTEXT["local"])
        disk.lost_answers = 1
        assert asyncio.run(learn(decision.decision_id))
        state = city.state()
    assert (state.decisions, state.feedback, state.version) == (1, 1, 1)
    assert sum(arm.count for arm in state.arms) == 1
    running.stop()


def test_a_call_that_stays_in_doubt_is_given_up_and_says_so(tmp_path: Path) -> None:
    disk = LosingAnswers()
    running = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"), runtime=Runtime(disk=disk))
    disk.lost_answers = 10**6
    once = Retries(attempts=1)
    with (
        City(running.url, retries=once) as city,
        pytest.raises(CityError, match="may have happened") as doubt,
    ):
        city.price(CONTEXT["shared"], CONTEXT["local"], decision_id="d")
    assert doubt.value.problem.type == "urn:pricemesh:problem:in-doubt"
    disk.lost_answers = 0
    running.stop()


@pytest.mark.parametrize("url", ["lisbon", "http://", "http://a:b", "ftp://a", ""])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(InvalidParameter, match="write http://host:port"):
        City(url)


def test_a_key_is_sent_with_every_call() -> None:
    def check(request: httpx.Request) -> httpx.Response:
        return httpx.Response(401, text=request.headers["authorization"])

    city = City("http://city", key="pm_a_b", transport=httpx.MockTransport(check))
    with city, pytest.raises(CityError, match="Bearer pm_a_b"):
        city.state()

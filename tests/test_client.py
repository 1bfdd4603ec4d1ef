"""The Python client, against a live city and against networks that fail."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pricemesh.client import AsyncCity, City, CityError, CityUnreachable, Retries
from tests.running import CONTEXT, RunningCity, settings_for

QUICK = Retries(attempts=4, first_pause_seconds=0.001)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    yield city.url
    city.stop()


def test_price_and_feedback_as_code_that_waits(url: str) -> None:
    with City(url) as city:
        decision = city.price(CONTEXT["shared"], CONTEXT["local"], subject="ann")
        assert city.feedback(decision.decision_id, 0.5).learned
        several = city.prices([(CONTEXT["shared"], CONTEXT["local"])] * 3)
        outcomes = city.feedbacks([(d.decision_id, 1.0) for d in several] + [("nobody", 1.0)])
        assert [outcome.status for outcome in outcomes] == [200, 200, 200, 404]
        assert city.decision(decision.decision_id).subject == "ann"
        assert city.state().version == 4
        with pytest.raises(CityError, match="409 Conflict") as refused:
            city.feedback(decision.decision_id, 0.6)
        assert refused.value.problem.type.endswith("other-reward")


def test_price_and_feedback_as_code_that_awaits(url: str) -> None:
    async def use() -> int:
        async with AsyncCity(url) as city:
            decisions = await asyncio.gather(
                *(city.price(CONTEXT["shared"], CONTEXT["local"]) for _ in range(5))
            )
            await city.feedbacks([(d.decision_id, 0.1) for d in decisions])
            more = await city.prices([(CONTEXT["shared"], CONTEXT["local"])])
            await city.feedback(more[0].decision_id, 0.2)
            await city.decision(more[0].decision_id)
            return (await city.state()).version

    assert asyncio.run(use()) == 6


def test_a_price_is_retried_under_the_same_decision_id() -> None:
    seen: list[bytes] = []

    def flaky(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        if len(seen) == 1:
            raise httpx.ConnectError("refused")
        if len(seen) == 2:
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
        }
        return httpx.Response(200, json=body)

    with City("http://city", transport=httpx.MockTransport(flaky), retries=QUICK) as city:
        city.price({"rain": 1.0})
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert b"decision_id" in seen[0]


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


def test_a_key_goes_along() -> None:
    def check(request: httpx.Request) -> httpx.Response:
        return httpx.Response(401, text=request.headers["authorization"])

    city = City("http://city", key="pm_a_b", transport=httpx.MockTransport(check))
    with city, pytest.raises(CityError, match="Bearer pm_a_b"):
        city.state()

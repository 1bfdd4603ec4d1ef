"""The step limit of a subject, where several replicas price the same subject at the same time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from pricemesh.city.deciding import Quote
from pricemesh.store.tables import decisions
from tests.running import CONTEXT, RunningCity, settings_for

PRICES = [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
MAX_STEP = 1.0
SUBJECTS = ("ann", "bob")
SECTIONS = {
    "arms": {"prices": PRICES},
    "guardrails": {"max_step": MAX_STEP},
    "policy": {"name": "netpool", "exploration": "thompson", "thompson_scale": 5.0},
}


@pytest.fixture
def replicas(postgres_url: str) -> Iterator[list[RunningCity]]:
    settings = settings_for(postgres_url, database={"replicas": True}, **SECTIONS)
    cities = [RunningCity(settings) for _ in range(3)]
    yield cities
    for city in cities:
        city.stop()


def prices_of(url: str, subject: str) -> list[float]:
    engine = sa.create_engine(url)
    query = sa.select(decisions.c.price).where(decisions.c.subject == subject).order_by(decisions.c.number)
    with engine.connect() as connection:
        prices = list(connection.scalars(query))
    engine.dispose()
    return prices


def test_no_step_is_too_long_when_replicas_price_the_same_subjects(
    postgres_url: str, replicas: list[RunningCity]
) -> None:
    """Single prices, batches, and the same decision asked for at two replicas."""

    def call(place: int) -> None:
        rng = Random(place)
        with httpx.Client(timeout=60.0) as http:
            for i in range(40):
                item = CONTEXT | {"subject": rng.choice(SUBJECTS), "decision_id": f"{i}-{place % 3}"}
                url = replicas[rng.randrange(3)].url
                path, body = "/price", dict[str, Any](item)
                if rng.random() < 0.3:
                    more = [CONTEXT | {"subject": rng.choice(SUBJECTS)} for _ in range(3)]
                    path, body = "/price/batch", {"requests": [item, *more]}
                while (answer := http.post(f"{url}{path}", json=body)).status_code == 503:
                    assert "nothing was changed" in answer.json()["detail"]  # so it may be asked again
                assert answer.status_code == 200, answer.text

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, range(6)))
    for subject in SUBJECTS:
        prices = prices_of(postgres_url, subject)
        assert len(prices) > 60
        assert len(set(prices)) > 3  # otherwise nothing was limited
        assert max(abs(after - before) for before, after in pairwise(prices)) <= MAX_STEP + 1e-9


def test_a_subject_that_another_replica_prices_between_look_up_and_commit_is_decided_again(
    postgres_url: str, replicas: list[RunningCity]
) -> None:
    first, second = replicas[:2]
    assert first.http.post("/price", json=CONTEXT | {"subject": "ann"}).status_code == 200
    database = first.pricing.database
    recall, interruptions = database.recall, 0

    def interrupted(*arguments: list[str]) -> object:
        found = recall(*arguments)
        if interruptions < 2:
            interrupt()
        return found

    def interrupt() -> None:
        """Until the price is another one: an equal one would be no conflict."""
        nonlocal interruptions
        interruptions += 1
        last_price = prices_of(postgres_url, "ann")[-1]
        while second.http.post("/price", json=CONTEXT | {"subject": "ann"}).json()["price"] == last_price:
            pass

    database.recall = interrupted  # type: ignore[assignment]
    answer = first.http.post("/price", json=CONTEXT | {"subject": "ann", "decision_id": "again"})
    assert answer.status_code == 200
    assert interruptions == 2
    prices = prices_of(postgres_url, "ann")
    assert prices[-1] == answer.json()["price"]
    assert max(abs(after - before) for before, after in pairwise(prices)) <= MAX_STEP + 1e-9
    assert first.http.get("/readyz").status_code == 200


def test_a_subject_that_others_price_all_the_time_is_refused_in_the_end_and_nothing_changed(
    postgres_url: str, replicas: list[RunningCity]
) -> None:
    first, second = replicas[:2]
    database = first.pricing.database
    recall = database.recall

    def interrupted(*arguments: list[str]) -> object:
        """Another price each time: an equal one would be no conflict."""
        found = recall(*arguments)
        pinned = PRICES[len(prices_of(postgres_url, "bob")) % len(PRICES)]
        second.http.post("/admin/pin", json={"price": pinned})
        assert second.http.post("/price", json=CONTEXT | {"subject": "bob"}).status_code == 200
        return found

    database.recall = interrupted  # type: ignore[assignment]
    answer = first.http.post("/price", json=CONTEXT | {"subject": "bob", "decision_id": "mine"})
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:pricemesh:problem:overloaded"
    assert "same subject" in answer.json()["detail"]
    assert answer.headers["Retry-After"]
    assert first.http.get("/decisions/mine").status_code == 404
    assert first.http.get("/readyz").status_code == 200


def test_a_quote_keeps_the_prices_that_its_steps_were_measured_from(replicas: list[RunningCity]) -> None:
    city = replicas[0]
    recalled = city.pricing.database.recall([], ["cy"])
    context = city.pricing.settings.features.space.vector(CONTEXT["shared"], CONTEXT["local"]).tobytes()
    (save,) = city.pricing.decider.decide_all([Quote([(None, "cy"), (None, None)], context * 2)], recalled)
    assert save.steps_from == {"cy": None}  # type: ignore[union-attr]

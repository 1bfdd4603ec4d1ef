"""An upgrade: the version before the newest migration serves beside this one, on the new schema."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.previous import HOW_TO_GET_THE_HISTORY, VERSIONS, extract, previous_commit
from tests.running import CONTEXT, CityProcess, RunningCity, settings_for, until

SECTIONS: dict[str, Any] = {"database": {"replicas": True}}


class Upgrade:
    """A city whose replicas are replaced one after the other."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder, self.old_source = url, folder, folder / "old"
        commit = previous_commit()
        assert commit is not None
        self.old_revision = extract(commit, self.old_source)
        self._running: list[CityProcess] = []
        self.rewards: dict[str, float] = {}  # acknowledged, by decision id

    def start(self, name: str, source: Path | None = None) -> CityProcess:
        city = CityProcess(self._folder / name, self.url, source=source, **SECTIONS)
        self._running.append(city)
        return city

    def replace(self, city: CityProcess, name: str) -> CityProcess:
        assert city.stop() == 0
        self._running.remove(city)
        return self.start(name)

    def trade(self, cities: list[CityProcess], decisions: int) -> None:
        """Each price of one replica gets its feedback at the next one, and once more at the first."""
        sellers, receivers = cycle(cities), cycle(cities[1:] + cities[:1])
        for number in range(decisions):
            seller, receiver = next(sellers), next(receivers)
            id_, reward = f"d{len(self.rewards)}", float(number % 3)
            body = {**CONTEXT, "decision_id": id_}
            price = httpx.post(f"{seller.url}/price", json=body)
            assert price.status_code == 200, price.text
            for city in (receiver, seller):
                told = httpx.post(f"{city.url}/feedback", json={"decision_id": id_, "reward": reward})
                assert told.status_code == 200, told.text
            self.rewards[id_] = reward

    def check_learners(self, cities: list[CityProcess]) -> None:
        """All have learned all feedback, and would choose alike."""

        def versions() -> list[int]:
            return [httpx.get(f"{city.url}/state").json()["version"] for city in cities]

        until(lambda: versions() == [len(self.rewards)] * len(cities))
        first, *others = [_estimates(city.url) for city in cities]
        for estimates in others:
            assert estimates == pytest.approx(first, rel=1e-9)

    def stop(self) -> None:
        for city in self._running:
            city.kill()


def _estimates(url: str) -> list[float]:
    answer = httpx.post(f"{url}/beliefs", json=CONTEXT)
    assert answer.status_code == 200, answer.text
    arms: list[dict[str, Any]] = answer.json()["arms"]
    return [value for arm in arms for value in (arm["estimate"], arm["radius"])]


@pytest.fixture
def upgrade(postgres: Postgres, tmp_path: Path) -> Iterator[Upgrade]:
    upgrade = Upgrade(postgres.new_database("upgrade"), tmp_path)
    yield upgrade
    upgrade.stop()


@pytest.mark.slow
@pytest.mark.skipif(previous_commit() is None, reason=HOW_TO_GET_THE_HISTORY)
def test_the_previous_version_serves_beside_the_new_one_on_the_new_schema(upgrade: Upgrade) -> None:
    migrate(upgrade.url, upgrade.old_revision, "lisbon")
    old = [upgrade.start(f"old{i}", upgrade.old_source) for i in range(2)]
    upgrade.trade(old, 20)
    migrate(upgrade.url, "head", "lisbon", replicas=True)
    assert _oldest_revision(upgrade.url) in _revisions(upgrade.old_source), (
        "the newest migration shuts the previous version out: add now, take away a version later"
    )
    upgrade.trade(old, 20)
    mixed = [old[0], upgrade.replace(old[1], "new1")]
    upgrade.trade(mixed, 20)
    upgrade.check_learners(mixed)
    old_again = upgrade.start("old2", upgrade.old_source)  # one of the previous version may also start
    upgrade.trade([*mixed, old_again], 21)
    upgrade.check_learners([*mixed, old_again])
    new = [upgrade.replace(old[0], "new0"), mixed[1], upgrade.replace(old_again, "new2")]
    upgrade.trade(new, 21)
    upgrade.check_learners(new)
    learned = _estimates(new[0].url)
    for city in new:
        city.stop()
    single = RunningCity(settings_for(upgrade.url))
    assert _estimates(single.url) == pytest.approx(learned, rel=1e-9)
    assert single.pricing.version == len(upgrade.rewards)
    single.stop()


def _oldest_revision(url: str) -> str:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        revision: str = connection.scalar(sa.text("SELECT oldest_revision FROM compatibility"))
    engine.dispose()
    return revision


def _revisions(source: Path) -> set[str]:
    return {path.name.partition("_")[0] for path in (source / VERSIONS).glob("*.py")}

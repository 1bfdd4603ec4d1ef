"""A city's export, imported into a new city, gives the same learner."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.history.export import Export, Selection
from pricemesh.history.importing import Import, ImportResult, digest_of, learn
from pricemesh.history.reading import HistoryReader
from pricemesh.history.tables import open_table
from pricemesh.history.writing import Format
from pricemesh.runtime import Runtime
from pricemesh.store.outside import reader_beside
from tests.city.test_reshaping import reshape
from tests.running import RunningCity, settings_for, until

BATCH = 500
WAITING = ("waiting", "pending", "pending_count")  # decisions without feedback, which an import leaves out
FIRST: dict[str, Any] = {
    "arms": {"prices": [8.0, 9.0, 10.0, 11.0, 12.0]},
    "features": {
        "shared": [{"name": "rain", "min": 0, "max": 1}, {"name": "demand", "min": -1, "max": 1}],
        "local": [{"name": "strike", "min": 0, "max": 1}],
    },
}
# A price leaves and one comes; a feature has another name, one is new, one has narrower bounds.
THEN: dict[str, Any] = {
    "arms": {"prices": [8.0, 9.0, 9.5, 11.0, 12.0]},
    "features": {
        "shared": [{"name": "wet", "min": 0, "max": 1}, {"name": "demand", "min": -1, "max": 0.9}],
        "local": [{"name": "strike", "min": 0, "max": 1}, {"name": "weekend", "min": 0, "max": 1}],
    },
}
KINDS: dict[str, dict[str, Any]] = {
    "demand": {"reward": {"kind": "purchase", "cost": 1.0, "max_units": 2}},
    "netpool": {"reward": {"kind": "value", "largest": 100.0}},
    "netsgducb": {"reward": {"kind": "value", "largest": 100.0}, "policy": {"name": "netsgducb"}},
}


class City:
    """Prices and feedback over HTTP, in batches."""

    def __init__(self, url: str, kind: str, seed: int) -> None:
        self.url, self.kind = url, kind
        self._rng = Random(seed)
        self._names = (f"d{i}" for i in range(1 << 40))
        self.unanswered: list[str] = []

    def settings(self, terms: dict[str, Any], **sections: Any) -> Settings:
        return settings_for(self.url, **terms, **KINDS[self.kind], **sections)

    def live(self, terms: dict[str, Any], count: int, **sections: Any) -> Iterator[RunningCity]:
        """A stretch of the city's life with `count` decisions, four in five of them answered, in a shuffled
        order, then whatever the caller does to the city that serves."""
        city = RunningCity(self.settings(terms, **sections))
        self.decide(city, terms, count)
        yield city
        city.stop()

    def decide(self, city: RunningCity, terms: dict[str, Any], count: int) -> list[str]:
        ids: list[str] = []
        for start in range(0, count, BATCH):
            several = [next(self._names) for _ in range(min(BATCH, count - start))]
            bodies = [{"decision_id": id_, **self._context(terms)} for id_ in several]
            city.http.post("/price/batch", json={"requests": bodies}).raise_for_status()
            answered = [id_ for id_ in several + self.unanswered[-BATCH // 5 :] if self._rng.random() < 0.8]
            self._rng.shuffle(answered)
            self.answer(city, answered)
            self.unanswered += [id_ for id_ in several if id_ not in set(answered)]
            self.unanswered = [id_ for id_ in self.unanswered if id_ not in set(answered)]
            ids += answered
        return ids

    def answer(self, city: RunningCity, ids: list[str]) -> None:
        items = [{"decision_id": id_, **self._outcome()} for id_ in ids]
        city.http.post("/feedback/batch", json={"items": items}).raise_for_status()

    def _outcome(self) -> dict[str, float]:
        if self.kind == "demand":
            return {"sold": float(self._rng.randrange(3))}
        return {"reward": self._rng.gauss(5.0, 20.0 / 6)}

    def _context(self, terms: dict[str, Any]) -> dict[str, dict[str, float]]:
        return {
            part: {
                each["name"]: self._rng.uniform(each["min"], each["max"]) for each in terms["features"][part]
            }
            for part in ("shared", "local")
        }

    def history(self, file: Path, count: int) -> Path:
        """Of another system: at prices between the arms, too, where the policy learns from them."""
        prices = [8.0, 9.0, 10.0, 11.0, 12.0] + ([8.25, 10.75] if self.kind == "demand" else [])
        outcome = "sold" if self.kind == "demand" else "reward"
        lines = [f"rain,demand,strike,price,time,{outcome}"]
        for _ in range(count):
            numbers = [self._rng.random(), self._rng.uniform(-1, 1), self._rng.random()]
            amount = next(iter(self._outcome().values()))
            values = [*numbers, self._rng.choice(prices), 1.6e9 + self._rng.randrange(count), amount]
            lines.append(",".join(map(repr, values)))
        file.write_text("\n".join(lines) + "\n")
        return file


def bring(settings: Settings, file: Path) -> ImportResult:
    work = Import(settings, file, file.name, digest_of(file), Runtime())
    return work.run(HistoryReader(settings, open_table(file)))


def lifetime(source: City, folder: Path, count: int) -> Settings:
    """All that a city's life can have in it; then it is stopped. Returns its last settings."""
    first = source.settings(FIRST)
    assert bring(first, source.history(folder / "before.csv", count // 10)).counted == count // 10
    for city in source.live(FIRST, 3 * count // 10):
        city.http.post("/admin/pin", json={"price": 9.0, "reason": "a fair"}).raise_for_status()
        source.decide(city, FIRST, count // 10)
        city.http.delete("/admin/pin").raise_for_status()
        city.http.post("/admin/freeze", json={"reason": "a strike"}).raise_for_status()
        source.decide(city, FIRST, count // 10)
        city.http.delete("/admin/freeze").raise_for_status()
        wrong = source.decide(city, FIRST, count // 10)[: max(1, min(900, count // 50))]
        retraction = {"decisions": wrong, "reason": "counted twice"}
        city.http.post("/admin/retract", json=retraction, timeout=60).raise_for_status()
    default = {"default_sold": 0} if source.kind == "demand" else {"default_reward": -1.0}
    clock = {"steady_seconds": 0.0}
    closing = source.settings(FIRST, feedback={"window_seconds": 0.01, **default}, clock=clock)
    city = RunningCity(closing)
    until(lambda: not _waits(city, source.unanswered[-1]))
    city.stop()
    source.unanswered.clear()
    last = source.settings(THEN)
    plan = reshape(last, {"wet": "rain"}, {"weekend": 0.5})
    assert plan is not None
    for _ in source.live(THEN, 3 * count // 10):
        pass
    return last


def _waits(city: RunningCity, id_: str) -> bool:
    return city.http.get(f"/decisions/{id_}").raise_for_status().json()["feedback"] is None


def opened(settings: Settings) -> LiveLearner:
    pricing = Pricing(settings, Runtime())
    pricing.open()
    pricing.database.close()
    return pricing.live


def export(settings: Settings, file: Path, format_: Format) -> None:
    with reader_beside(settings.database.url, settings.city, settings.schema_description) as reader:
        work = Export(settings, reader, Selection(format_))
        work.begin()
        with file.open("wb") as stream:
            while (piece := work.next()) is not None:
                stream.write(piece)


def assert_same_lessons(one: LiveLearner, other: LiveLearner) -> None:
    """But for decisions that wait for feedback."""
    expected = other.learner.state()
    for name, value in one.learner.state().items():
        if name not in WAITING:
            np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(one.lesson_counts, other.lesson_counts)
    np.testing.assert_allclose(one.reward_sums, other.reward_sums, rtol=1e-9)
    np.testing.assert_array_equal(one.units_sold, other.units_sold)
    assert one.counts.off_ladder == other.counts.off_ladder
    assert one.rewards.count == other.rewards.count
    np.testing.assert_allclose(one.rewards.squares, other.rewards.squares, rtol=1e-9)
    np.testing.assert_allclose(one.learner.numbers(), other.learner.numbers(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "format_"), [("demand", Format.CSV), ("netpool", Format.PARQUET), ("netsgducb", Format.CSV)]
)
@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_new_city_learns_from_an_export_what_the_first_one_knew(
    tmp_path: Path, kind: str, format_: Format, count: int
) -> None:
    """With imported and pinned decisions, feedback in any order, by default, while learning was frozen and
    retracted, decisions without any, and older terms."""
    source = City(f"sqlite:///{tmp_path}/first.db", kind, seed=count)
    settings = lifetime(source, tmp_path, count)
    known = opened(settings)
    assert known.counts.retracted
    assert known.counts.unreadable
    assert known.counts.off_ladder or kind != "demand"
    file = tmp_path / "export"
    export(settings, file, format_)
    new = settings_for(f"sqlite:///{tmp_path}/second.db", **THEN, **KINDS[kind])
    result = bring(new, file)
    assert result.counted == known.lessons_learned
    assert learn(new, Runtime()) == result.counted
    assert_same_lessons(opened(new), known)

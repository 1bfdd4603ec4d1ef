"""The truth: taken by demonstrations alone, and shown to whoever watches."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pricemesh.dashboard.lab import MOST_MARKS, Lab
from pricemesh.http.schemas import CityTruth, Regret
from tests.dashboard.test_events import events
from tests.http.test_keys import pricemesh
from tests.running import RunningCity, settings_for

TOLD = {
    "city": "lisbon",
    "together": {"decisions": 10, "regret": 0.5},
    "alone": {"decisions": 10, "regret": 1.0},
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[bool], RunningCity]]:
    running: list[RunningCity] = []

    def start_(demo: bool) -> RunningCity:
        running.append(RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", lab={"demo": demo})))
        return running[0]

    yield start_
    for city in running:
        city.stop()


def test_a_city_that_is_no_demonstration_takes_no_truth(start: Callable[[bool], RunningCity]) -> None:
    city = start(False)
    refused = city.http.post("/lab/truth", json={"cities": [TOLD]})
    assert refused.status_code == 403
    assert refused.json()["type"] == "urn:pricemesh:problem:not-a-demo"
    assert "PRICEMESH_LAB_DEMO=true" in refused.json()["detail"]
    assert events(city)[-1][1]["truth"] == []


def test_the_truth_is_in_the_next_frame_and_in_the_history(start: Callable[[bool], RunningCity]) -> None:
    city = start(True)
    assert city.http.post("/lab/truth", json={"cities": [TOLD]}).json() == {"cities": 1}
    (_, history), (_, frame) = events(city)
    assert {k: v for k, v in frame["truth"][0].items() if k != "at"} == TOLD
    assert history["truth"][0][1] == {"lisbon": [0.05, 0.1]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cities": []}, "cities"),
        ({"cities": [TOLD | {"city": "a b"}]}, "cities.0.city"),
        ({"cities": [TOLD | {"together": {"decisions": -1, "regret": 0.0}}]}, "cities.0.together.decisions"),
        ({"cities": [TOLD] * 65}, "cities"),
        ({"cities": [{"city": "lisbon"}]}, "cities.0.together"),
    ],
)
def test_what_is_no_truth_is_named(start: Callable[[bool], RunningCity], body: Any, field: str) -> None:
    refused = start(True).http.post("/lab/truth", json=body)
    assert refused.status_code == 422
    assert field in [fault["field"] for fault in refused.json()["errors"]]


def test_a_long_run_is_kept_whole_in_few_marks() -> None:
    lab = Lab(demo=True)
    for second in range(5000):
        regret = Regret(decisions=second, regret=second * 0.5)
        lab.report([CityTruth(city="lisbon", together=regret)], float(second))
    assert 30 < len(lab.marks) < MOST_MARKS
    assert lab.marks[0] == (0.0, {"lisbon": (None, None)})
    assert lab.marks[-1][0] > 4900
    assert lab.marks[-1][1] == {"lisbon": (0.5, None)}


def test_a_drive_tells_the_truth_where_it_is_taken_and_says_where_it_is_not(
    start: Callable[[bool], RunningCity], tmp_path: Path
) -> None:
    city = start(True)
    words = ("drive", city.url, "--decisions", "20", "--truth", "--json", "-")
    run = pricemesh(*words, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["cities"][0]["decisions"] == 20
    (told,) = events(city)[-1][1]["truth"]
    assert (told["city"], told["alone"]) == ("lisbon", None)


def test_a_drive_that_is_refused_says_why(start: Callable[[bool], RunningCity], tmp_path: Path) -> None:
    run = pricemesh("drive", start(False).url, "--decisions", "20", "--truth", cwd=tmp_path)
    assert run.returncode == 2
    assert "PRICEMESH_LAB_DEMO=true" in run.stderr

"""The truth that a driver reports: accepted by demonstrations only, and shown on every open page."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pricemesh.dashboard.truth import MAX_MARKS, TruthReports
from pricemesh.http.truth_schemas import CityTruth, Regret
from tests.dashboard.test_events import events
from tests.http.test_keys import pricemesh
from tests.running import RunningCity, settings_for

REPORT = {
    "city": "lisbon",
    "together": {"decisions": 10, "regret": 0.5},
    "alone": {"decisions": 10, "regret": 1.0},
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[bool], RunningCity]]:
    running: list[RunningCity] = []

    def start_city(demo: bool) -> RunningCity:
        running.append(RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", lab={"demo": demo})))
        return running[0]

    yield start_city
    for city in running:
        city.stop()


def test_a_city_that_is_no_demonstration_refuses_the_truth(start: Callable[[bool], RunningCity]) -> None:
    city = start(False)
    refusal = city.http.post("/lab/truth", json={"cities": [REPORT]})
    assert refusal.status_code == 403
    assert refusal.json()["type"] == "urn:pricemesh:problem:not-a-demo"
    assert "PRICEMESH_LAB_DEMO=true" in refusal.json()["detail"]
    assert events(city)[-1][1]["truth"] == []


def test_the_truth_is_in_the_next_frame_and_in_the_history(start: Callable[[bool], RunningCity]) -> None:
    city = start(True)
    assert city.http.post("/lab/truth", json={"cities": [REPORT]}).json() == {"cities": 1}
    (_, history), (_, frame) = events(city)
    assert {k: v for k, v in frame["truth"][0].items() if k != "at"} == REPORT
    assert history["truth"][0][1] == {"lisbon": [0.05, 0.1]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cities": []}, "cities"),
        ({"cities": [REPORT | {"city": "a b"}]}, "cities.0.city"),
        (
            {"cities": [REPORT | {"together": {"decisions": -1, "regret": 0.0}}]},
            "cities.0.together.decisions",
        ),
        ({"cities": [REPORT] * 65}, "cities"),
        ({"cities": [{"city": "lisbon"}]}, "cities.0.together"),
    ],
)
def test_an_invalid_report_is_refused_by_field(
    start: Callable[[bool], RunningCity], body: Any, field: str
) -> None:
    refusal = start(True).http.post("/lab/truth", json=body)
    assert refusal.status_code == 422
    assert field in [fault["field"] for fault in refusal.json()["errors"]]


def test_a_long_run_is_shown_whole_with_few_marks() -> None:
    reports = TruthReports(demo=True)
    for second in range(5000):
        regret = Regret(decisions=second, regret=second * 0.5)
        reports.report([CityTruth(city="lisbon", together=regret)], float(second))
    assert 30 < len(reports.marks) < MAX_MARKS
    assert reports.marks[0] == (0.0, {"lisbon": (None, None)})
    assert reports.marks[-1][0] > 4900
    assert reports.marks[-1][1] == {"lisbon": (0.5, None)}


def test_marks_go_on_after_the_clock_was_set_back() -> None:
    reports = TruthReports(demo=True)
    for now in (7200.0, 0.0, 1.0):
        reports.report([CityTruth(city="lisbon", together=Regret(decisions=1, regret=0.5))], now)
    assert [at for at, _ in reports.marks] == [7200.0, 0.0, 1.0]


def test_a_drive_reports_the_truth_to_a_demonstration(
    start: Callable[[bool], RunningCity], tmp_path: Path
) -> None:
    city = start(True)
    arguments = ("drive", city.url, "--decisions", "20", "--truth", "--json", "-")
    run = pricemesh(*arguments, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["cities"][0]["decisions"] == 20
    (truth,) = events(city)[-1][1]["truth"]
    assert (truth["city"], truth["alone"]) == ("lisbon", None)


def test_a_drive_that_is_refused_says_why(start: Callable[[bool], RunningCity], tmp_path: Path) -> None:
    run = pricemesh("drive", start(False).url, "--decisions", "20", "--truth", cwd=tmp_path)
    assert run.returncode == 2
    assert "PRICEMESH_LAB_DEMO=true" in run.stderr

"""The study of the paper, in small: it goes on where it was, and its report says what its data say."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.sim.paper import experiments as lab
from service.sim.paper import study
from service.sim.paper.claims import CLAIMS, Evidence, Ratio
from service.sim.paper.report import draw_all, write_csv, write_report
from service.sim.paper.study import Job, Results, Setting, measure, run_all
from service.sim.simulate import entries, simulate
from service.sim.worlds import Linear

SEEDS = (0, 1)
SMALL = Setting("small", Linear(cities=3, arms=2, shared=2, local=1), groups="3", rounds=40)


def test_a_job_measures_what_simulate_does() -> None:
    record = measure(Job(SMALL, "netpool", SEEDS))
    outcome = simulate(SMALL.world, entries(["netpool"], [])[0], SEEDS, 40, groups=(3,))
    assert record["rounds"][0] == 1
    assert record["rounds"][-1] == 40
    np.testing.assert_allclose(np.array(record["regret"])[:, -1], outcome.regret.sum(axis=1))
    np.testing.assert_allclose(np.array(record["radius"])[:, 0], outcome.radius[:, 0])


def test_what_decides_the_outcome_names_the_job() -> None:
    job = Job(SMALL, "netpool", SEEDS)
    others = (
        Job(SMALL, "netpool:trust=equal", SEEDS),
        Job(SMALL, "netpool", (0, 2)),
        Job(replace(SMALL, rounds=41), "netpool", SEEDS),
        Job(replace(SMALL, world=Linear(cities=3, arms=2, shared=2, local=1, noise=0.4)), "netpool", SEEDS),
    )
    assert len({each.key for each in (job, *others)}) == 5
    assert job.key == Job(SMALL, "netpool", SEEDS).key


def test_an_interrupted_study_goes_on_where_it_was(tmp_path: Path) -> None:
    jobs = [Job(SMALL, policy, SEEDS) for policy in ("disjoint", "netpool", "shared")]
    results = Results(tmp_path / "data")
    results.keep(jobs[0], measure(jobs[0]))
    told: list[int] = []
    done = list(run_all(jobs, results, 1, told.append))
    assert told == [2]
    assert set(done) == set(jobs[1:])
    assert list(run_all(jobs, results, 1, told.append)) == []


def test_a_ratio_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = Evidence(Results(tmp_path), (0, 1, 2))
    values = {"a": np.array([2.0, 4.0, 6.0]), "b": np.array([1.0, 2.0, 3.0])}

    class Of:
        def __init__(self, policy: str) -> None:
            self.average = values[policy]

    monkeypatch.setattr(evidence, "of", lambda _setting, policy: Of(policy))
    assert evidence.ratio(SMALL, "a", "b") == Ratio(2.0, 0.0)  # twice in every seed: no doubt left
    values["a"] = np.array([3.0, 4.0, 5.0])
    ratio = evidence.ratio(SMALL, "a", "b")
    assert (ratio.mean, ratio.error) == pytest.approx((2.0, 2 * 0.5 / np.sqrt(3)))


def test_the_report_says_what_the_data_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim judged, every table's figure recomputed from the CSV."""
    real = study.measure
    monkeypatch.setattr(
        study, "measure", lambda job: real(replace(job, setting=replace(job.setting, rounds=24)))
    )
    jobs, results = lab.all_jobs(SEEDS), Results(tmp_path / "data")
    for job in results.missing(jobs):
        results.keep(job, study.measure(job))
    report = write_report(results, SEEDS, tmp_path).read_text()
    table = write_csv(results, jobs, tmp_path)
    with table.open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["round"] == "24"]
    for setting in (lab.DEFAULT, lab.NOISES[0.05]):
        here = [row for row in rows if row["setting"] == setting.name]
        means = {
            policy: np.mean([float(row["regret"]) for row in here if row["policy"] == policy])
            for policy in lab.POLICIES
        }
        (line,) = re.findall(rf"^\| {re.escape(setting.name)} \|.*$", report, re.M)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert float(cells[1]) == pytest.approx(means["disjoint"] / 24, abs=6e-5)
        for cell, policy in zip(cells[2:], lab.POLICIES[1:], strict=True):
            assert float(cell.split(" ")[0]) == pytest.approx(means[policy] / means["disjoint"], abs=6e-3)
    assert all(claim.says in report for claim in CLAIMS)
    assert len(re.findall(r"\*\*(holds|holds in part|does not hold)\*\*", report)) == len(CLAIMS)
    drawn = draw_all(results, SEEDS, tmp_path)
    assert {path.suffix for path in drawn} == {".png", ".svg"}
    assert all(path.stat().st_size > 5000 for path in drawn)

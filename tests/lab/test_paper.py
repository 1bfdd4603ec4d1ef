"""The study of the paper: it resumes, and its measurements equal those by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.policies import make_policy
from pricemesh.lab.jobs import Workers
from pricemesh.lab.mesh import Conduct, Mesh
from pricemesh.lab.paper import cost
from pricemesh.lab.paper.claims import CLAIMS
from pricemesh.lab.paper.claims.claim import Verdict, mostly, verdict_of, worst
from pricemesh.lab.paper.cost import Cost
from pricemesh.lab.paper.evidence import Estimate, ratio
from pricemesh.lab.paper.intervals import Intervals
from pricemesh.lab.paper.study import (
    Job,
    Results,
    Setting,
    half_weight,
    measure,
    own_weight,
    run_all,
    slopes,
    studied,
)
from pricemesh.lab.paper.tables import Tables, write_tables
from pricemesh.lab.simulate import simulate
from pricemesh.lab.worlds import Linear
from tests.cli.test_cli import pricemesh

SEEDS = (0, 1)
SMALL = Setting("small", Linear(cities=3, arms=2, shared=2, local=1), rounds=40)


def test_a_job_measures_what_simulate_does() -> None:
    setting = replace(SMALL, groups="2,1", gossip_every=3, delay=2, drifts=True)
    record = measure(Job(setting, "netpool", SEEDS))
    conduct = Conduct(groups=(2, 1), gossip_every=3, delay=2, drift_at=20)
    outcome = simulate(SMALL.world, studied("netpool"), SEEDS, 40, conduct)
    assert record["curve"]["round"][0] == 1
    assert record["curve"]["round"][-1] == 40
    np.testing.assert_allclose(record["seeds"]["regret"], outcome.regret.mean(axis=1))
    np.testing.assert_allclose(record["curve"]["regret"][-1], outcome.regret.mean())
    np.testing.assert_allclose(record["curve"]["radius_whole"][9], outcome.radius[:, 9].mean())


def test_the_key_of_a_job_depends_on_everything_that_decides_its_outcome() -> None:
    job = Job(SMALL, "netpool", SEEDS)
    others = (
        Job(SMALL, "netpool:trust=equal", SEEDS),
        Job(SMALL, "netpool", (0, 2)),
        Job(replace(SMALL, rounds=41), "netpool", SEEDS),
        Job(replace(SMALL, delay=1), "netpool", SEEDS),
        Job(replace(SMALL, world=Linear(cities=3, arms=2, shared=2, local=1, noise=0.4)), "netpool", SEEDS),
    )
    assert len({each.key for each in (job, *others)}) == 6
    assert job.key == Job(SMALL, "netpool", SEEDS).key


def test_an_interrupted_study_resumes_where_it_stopped(tmp_path: Path) -> None:
    jobs = [Job(SMALL, policy, SEEDS) for policy in ("disjoint", "netpool", "shared")]
    results = Results(tmp_path / "data")
    results.store(jobs[0], measure(jobs[0]))
    remaining = results.missing_jobs(jobs)
    assert remaining == jobs[1:]
    assert set(run_all(remaining, results, Workers(1))) == set(remaining)
    assert results.missing_jobs(jobs) == []


def test_tables_are_read_as_they_were_written(tmp_path: Path) -> None:
    jobs = [Job(replace(SMALL, city_by_city=True), policy, SEEDS) for policy in ("disjoint", "netlinucb")]
    results = Results(tmp_path / "data")
    for job in jobs:
        results.store(job, measure(job))
    costs = [Cost("disjoint", "cities", 8, 0.5, 1000, 0)]
    write_tables(results, jobs, costs, tmp_path)
    tables = Tables.read(tmp_path)
    assert tables.cost == costs
    assert (tables.rounds, tables.seed_count) == (40, 2)
    for job in jobs:
        record = results.read(job)
        for column, values in record["seeds"].items():
            read = tables.by_seed(job.setting, job.policy, column)
            np.testing.assert_allclose(read, values, rtol=1e-5, err_msg=column)
        curve = tables.curve(job.setting, job.policy)
        np.testing.assert_allclose(curve["error"], record["curve"]["error"], rtol=1e-5)
        np.testing.assert_allclose(curve["regret"], record["curve"]["regret"], rtol=1e-5)
        assert len(tables.cities["small", "", job.policy]["truth"]) == 3 * len(record["curve"]["round"])
    assert np.isnan(tables.by_seed(SMALL, "disjoint", "own_weight")).all()
    assert (tables.by_seed(SMALL, "netlinucb", "own_weight") < 1).all()


def test_a_ratio_by_hand() -> None:
    twice = ratio(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert twice == Estimate(2.0, 0.0)  # twice in every seed: no error
    doubtful = ratio(np.array([3.0, 4.0, 5.0]), np.array([1.0, 2.0, 3.0]))
    assert (doubtful.value, doubtful.error) == pytest.approx((2.0, 2 * 0.5 / np.sqrt(3)))
    assert doubtful.above(1.4)
    assert not doubtful.above(1.5)
    assert not doubtful.below(2.5)


def test_the_slope_of_a_power_is_that_power() -> None:
    t = np.arange(1.0, 501.0)
    np.testing.assert_allclose(slopes(np.stack([3 * t**0.5, 0.1 * t])), [0.5, 1.0], rtol=1e-9)
    costs = [Cost("shared", "cities", n, 2e-6 * n**2.5, 7 * n, 0) for n in (1, 8, 32, 128)]
    assert cost.exponent(costs, "shared", "cities", "seconds") == pytest.approx(2.5)
    assert cost.exponent(costs, "shared", "cities", "memory") == pytest.approx(1.0)
    assert cost.exponent(costs, "shared", "cities", "bytes") == 0.0


def test_intervals_are_those_of_the_raw_history() -> None:
    """Radii of the whole and of the shared part, and coverage, recomputed by plain regression."""
    world, seed, rounds = Linear(cities=2, arms=2, shared=2, local=1, noise=0.3), 3, 30
    policy = make_policy("disjoint", alpha=0.9)
    mesh = Mesh(world, policy, [seed])
    intervals = Intervals(mesh, rounds)
    history: list[tuple[Array, Ints, Array]] = []
    radii, squares, within = [], [], []
    for step in mesh.play(rounds):
        if step.round > 0.9 * rounds or step.round > rounds / 2:
            intervals.look(step)
            for city in range(2):
                x = step.now.context[0, city]
                for arm in range(2):
                    mine = [(c[0, city], r[0, city]) for c, a, r in history if a[0, city] == arm]
                    gram = np.eye(3) + sum((np.outer(c, c) for c, _ in mine), np.zeros((3, 3)))
                    inverse = np.linalg.inv(gram)
                    theta = inverse @ sum((r * c for c, r in mine), np.zeros(3))
                    off = abs(x @ theta - step.now.expected[0, city, arm])
                    within.append(off <= 1.959964 * 0.3 * np.sqrt(x @ inverse @ x))
                    if arm == step.arm[0, city] and step.round >= 0.9 * rounds:
                        shared = x[:2] @ inverse[:2, :2] @ x[:2]
                        radii.append(0.9 * np.sqrt(shared))
                        squares.append(0.81 * (x @ inverse @ x))
        history.append((step.now.context, step.arm, step.reward))
    columns = intervals.columns()
    assert columns["radius_shared"][0] == pytest.approx(np.mean(radii))
    assert columns["square_whole"][0] == pytest.approx(np.mean(squares))
    assert columns["coverage_95"][0] == pytest.approx(np.mean(within))


def test_weights_on_oneself_and_on_ones_half_by_hand() -> None:
    mesh = Mesh(Linear(cities=4, arms=2, shared=2, local=0), make_policy("netlinucb"), [0])
    learner = mesh.blocks[0].learner
    row = np.array([0.4, 0.3, 0.2, 0.1])
    learner.weights = np.broadcast_to(row, (1, 1, 2, 4, 4))  # seed, group, arm, receiver, sender
    np.testing.assert_allclose(own_weight(mesh), [(0.4 + 0.3 + 0.2 + 0.1) / 4])
    np.testing.assert_allclose(half_weight(mesh), [(0.7 + 0.7 + 0.3 + 0.3) / 4])
    assert np.isnan(half_weight(Mesh(SMALL.world, make_policy("disjoint"), SEEDS))).all()


def test_verdicts_follow_from_the_checks() -> None:
    assert [verdict_of(checks) for checks in ([True, True], [True, False], [False])] == list(Verdict)
    assert worst([Verdict.HOLDS, Verdict.DOES_NOT, Verdict.IN_PART]) is Verdict.DOES_NOT
    assert [mostly(checks) for checks in ([True], [True, False], [True, False, False])] == list(Verdict)


def test_the_cost_of_a_round_is_measured() -> None:
    (played, inverted) = cost.measure_all(
        [cost.Point("netlinucb", "cities", 8), cost.Point(cost.INVERTED["shared"], "cities", 8)]
    )
    assert 0 < played.seconds < 60
    state = 8 * 5 * (16 * 16 * 8) * 2  # two matrices an arm and city, at the least
    assert state < played.memory < 10 * state
    numbers = 5 * (8 * 9 // 2 + 8 + 1) + 8
    assert played.bytes == pytest.approx(8 * 7 * 8 * numbers, rel=0.05)
    assert inverted.memory == 2 * 5 * (8 + 8 * 8) ** 2 * 8


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    run = pricemesh("paper", "--report-only", "--out", str(tmp_path))
    assert run.returncode == 2
    assert "there are no tables in" in run.stderr
    run = pricemesh("paper", "--seeds", "1", "--out", str(tmp_path))
    assert run.returncode == 2
    assert "two or more" in run.stderr


@pytest.mark.slow
def test_a_quick_study_from_the_command_line(tmp_path: Path) -> None:
    """Minutes: every experiment, figure and verdict, with two seeds."""
    run = pricemesh("paper", "--quick", "--seeds", "2", "--out", str(tmp_path), patience=1800)
    assert run.returncode == 0, run.stderr
    assert "report.md" in run.stdout
    report = (tmp_path / "report.md").read_text()
    assert all(claim.says in report for claim in CLAIMS)
    again = pricemesh("paper", "--report-only", "--out", str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "report.md").read_text() == report

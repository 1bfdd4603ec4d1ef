"""Simulated meshes keep every promise, repeat to the byte, and find the defects that are planted in them."""

import json
import os
import select
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from pricemesh.lab.torture.defects import DEFECTS
from pricemesh.lab.torture.plan import ACTIONS, REPLICA_ACTIONS, YEAR_ACTIONS, make_plan
from pricemesh.lab.torture.planting import planted
from pricemesh.lab.torture.run import find_defect, run_seed, run_with_defect, shorten

SEEDS, GROUPS = 200, 8
FEW_STEPS = 20  # of each of them
STEPS = 120  # until a planted defect is found


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_seed_violates_an_invariant(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        assert run_seed(seed, FEW_STEPS).violation is None


FAILED_ONCE = {  # seed and steps: what it found
    (9028, 150): "a clock was wrong between two looks at it: a decision dated then lost its window",
    (2995, 300): "the audit expected a restarted city to know what a sender whose clock is ahead had sent",
    (323, 300): "the audit took a decision of a backup to be as young as the restored database",
    (143, 120): "a start on a full disk published a letter that was not committed",
    (2019, 300): "the audit took the rows of a backup for defaults given by a stepped clock",
    (2041, 300): "the same",
    (369, 300): "the audit expected the newer of two pins, but the older had been overtaken and came last",
    (482, 300): "the same, of a pin and its lifting",
    (532, 300): "the same, of a freeze and its lifting",
    (25, 300): "a call that timed out during its commit left a letter in the rows that did not count",
    (66, 300): "after a commit in doubt an older letter replaced a newer one in the rows",
    (580, 300): "the audit forgot feedback that was under way to a city while its backup was restored",
}


FAILED_WITH_REPLICAS = {
    (6012, 200): "the same feedback twice in one commit was answered with two versions",
    (40299, 120): "a replica that had been stopped learned feedback before it knew of a freeze",
    (472, 300): "a time limit that the server did not set in time left a transaction open for ever",
    (322, 300): "a letter that came between the start of a city and that of its gossip was not read",
    (169, 300): "the audit took a slow answer from before for one of a city without faults",
    (30011, 150): "the audit did not wait for a replica to follow a window that had just closed",
}


@pytest.mark.parametrize(("seed", "steps"), FAILED_ONCE)
def test_a_seed_that_failed_once_does_not_fail_again(seed: int, steps: int) -> None:
    assert run_seed(seed, steps, has_replicas=False, has_years=False).violation is None


@pytest.mark.parametrize(("seed", "steps"), FAILED_WITH_REPLICAS)
def test_a_seed_with_replicas_that_failed_once_does_not_fail_again(seed: int, steps: int) -> None:
    assert run_seed(seed, steps, has_replicas=True, has_years=False).violation is None


FAILED_WITH_YEARS = {
    (0, 300): "a city with another ladder folded its peers no more: the weights of the old arms had stayed",
    (40, 300): "a time limit that could not be set lost a replica's connection to the database for good",
    (110, 300): "a decision of a longer ladder, asked for again, failed all prices beside it",
    (42, 300): "a reshape with a renamed feature could not be repeated after an answer was lost",
}


@pytest.mark.parametrize(("seed", "steps"), FAILED_WITH_YEARS)
def test_a_seed_with_another_past_that_failed_once_does_not_fail_again(seed: int, steps: int) -> None:
    assert run_seed(seed, steps, has_years=True).violation is None


@pytest.mark.parametrize("has_replicas", [False, True])
def test_a_seed_repeats_its_run_to_the_byte_in_any_process(has_replicas: bool) -> None:
    run = f"run_seed(11, 40, {has_replicas})"
    script = f"from pricemesh.lab.torture.run import run_seed; print({run}.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {f"{run_seed(11, 40, has_replicas).digest}\n"}
    assert run_seed(12, 40, has_replicas).digest not in digests


def test_plans_draw_every_action() -> None:
    for has_replicas, has_years in product((False, True), repeat=2):
        plans = [make_plan(seed, 300, has_replicas, has_years) for seed in range(30)]
        actions = {*ACTIONS, *(REPLICA_ACTIONS if has_replicas else ()), *(YEAR_ACTIONS if has_years else ())}
        assert {step.action for plan in plans for step in plan.steps} == actions


def test_about_half_of_the_meshes_have_replicas() -> None:
    counts = [max(make_plan(seed, 1).replicas) for seed in range(400)]
    assert 160 <= sum(count > 1 for count in counts) <= 240  # four standard errors
    assert set(counts) == {1, 2, 3}


def test_the_past_is_changed_in_about_a_third_of_the_meshes() -> None:
    actions = [{step.action for step in make_plan(seed, 100).steps} for seed in range(400)]
    assert 96 <= sum(not each.isdisjoint(YEAR_ACTIONS) for each in actions) <= 171  # four standard errors


def test_the_other_steps_are_the_same_where_the_past_is_changed() -> None:
    with_years, without = (make_plan(5, 300, has_years=has_years).steps for has_years in (True, False))
    others = [pair for pair in zip(with_years, without, strict=True) if pair[0].action not in YEAR_ACTIONS]
    assert len(others) > 250
    assert all(step == other for step, other in others)


def test_a_seed_has_one_plan_and_every_seed_another() -> None:
    assert make_plan(3, 50) == make_plan(3, 50)
    assert make_plan(3, 50).steps != make_plan(4, 50).steps


QUICKLY_FOUND = (
    "answer-before-commit",
    "no-deduplication",
    "version-reused",
    "learned-twice",
    "lease-kept",
    "epoch-kept",
)


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_defect_is_found_within_twenty_seeds(name: str) -> None:
    assert find_defect(name, range(20), STEPS, workers=1) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_every_planted_defect_is_found_within_a_thousand_seeds(name: str) -> None:
    assert find_defect(name, range(1000), 300, workers=1) is not None


def test_a_history_is_shortened_to_steps_that_still_fail() -> None:
    name = "answer-before-commit"
    violation = next(
        outcome.violation
        for outcome in (run_with_defect(seed, name, 40) for seed in range(20))
        if outcome.violation is not None
    )
    with planted(DEFECTS[name]):
        shortest = shorten(violation, 40, max_runs=15)
    assert shortest.invariant == violation.invariant
    assert 0 < len(shortest.history) < len(violation.history)


POOL = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pricemesh.lab.torture.run import prepare_worker

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=prepare_worker) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        sys.stdin.read()
"""


def test_workers_end_when_the_command_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], stdin=pipe, stdout=pipe, text=True) as command:
        assert command.stdout is not None
        worker = os.pidfd_open(int(command.stdout.readline()))
        command.kill()
    try:
        ready, _, _ = select.select([worker], [], [], 60)
    finally:
        os.close(worker)
    assert ready


def test_the_command_writes_its_result_as_json() -> None:
    command = [sys.executable, "-m", "pricemesh", "torture", "--seeds", "2", "--steps", "30"]
    run = subprocess.run(
        [*command, "--workers", "1", "--json", "-"], capture_output=True, text=True, check=True, timeout=120
    )
    result = json.loads(run.stdout)
    assert (result["seeds"], result["steps"], result["violations"]) == (2, 30, [])
    assert result["seconds"] > 0

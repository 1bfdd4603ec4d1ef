"""Jobs in processes of this machine."""

import os
import signal

import pytest

from pricemesh.errors import InvalidParameter, WorkersUnavailable
from pricemesh.lab.jobs import Workers, run_jobs


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    raise InvalidParameter(f"job {number}")


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_is_run_once_whatever_the_number_of_processes(processes: int) -> None:
    results = list(run_jobs(square, [3, 5, 3], Workers(processes)))
    assert sorted(results) == [(0, 9), (1, 25), (2, 9)]


def test_nothing_is_started_for_no_jobs() -> None:
    assert list(run_jobs(square, [])) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_fails_ends_the_run_with_its_own_error(processes: int) -> None:
    with pytest.raises(InvalidParameter, match="job "):
        list(run_jobs(fail, [1, 2, 3], Workers(processes)))


def test_a_process_that_dies_is_told_with_what_to_do() -> None:
    with pytest.raises(
        WorkersUnavailable, match="perhaps because memory ran out: try again with fewer --workers"
    ):
        list(run_jobs(die, [1, 2], Workers(2)))

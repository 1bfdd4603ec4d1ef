"""Replicas that are killed and stopped under load: nothing acknowledged is lost, nothing is learned twice."""

import os
import signal
import threading
import time
from random import Random

import httpx
import numpy as np
import pytest

from tests.running import CONTEXT, RunningCity, settings_for, until
from tests.serving.fleet import REPLICAS, Fleet, check_rows


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_replicas_killed_under_load_lose_nothing(fleet: Fleet, kills: int) -> None:
    rng = Random(7)
    threads = [threading.Thread(target=fleet.drive, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        before = len(fleet.told)
        until(lambda before=before: len(fleet.told) > before + 5)  # type: ignore[misc]
        fleet.kill_and_restart(rng.randrange(REPLICAS))
    fleet.done.set()
    for thread in threads:
        thread.join()
    newest = check_rows(fleet)
    until(lambda: [state["version"] for state in fleet.states()] == [newest] * REPLICAS)
    counts = [[arm["count"] for arm in state["arms"]] for state in fleet.states()]
    assert counts == [counts[0]] * REPLICAS
    for replica in fleet.replicas:
        replica.kill()
    single = RunningCity(settings_for(fleet.url))
    assert single.pricing.version == newest
    assert single.pricing.live.lesson_counts.tolist() == counts[0]
    learner = single.pricing.learner
    np.testing.assert_allclose(learner.state()["pending_count"], 0.0, atol=1e-9)
    single.stop()


def test_a_publisher_that_is_stopped_is_replaced_and_the_others_go_on(fleet: Fleet) -> None:
    (publisher,) = fleet.publishers()
    os.kill(fleet.replicas[publisher].pid, signal.SIGSTOP)
    began_at, slowest = time.monotonic(), 0.0
    try:
        others = [i for i in range(REPLICAS) if i != publisher]
        with httpx.Client(timeout=5.0) as http:
            for i in range(20):
                address = f"http://127.0.0.1:{fleet.ports[others[i % 2]]}"
                asked_at = time.monotonic()
                price = http.post(f"{address}/price", json=CONTEXT).json()
                told = {"decision_id": price["decision_id"], "reward": 1.0}
                assert http.post(f"{address}/feedback", json=told).status_code == 200
                slowest = max(slowest, time.monotonic() - asked_at)
        until(lambda: any(i in fleet.publishers() for i in others))
        print(f"a price with its feedback took {slowest:.3f} s at most")
        print(f"another published {time.monotonic() - began_at:.2f} s after the stop")
    finally:
        os.kill(fleet.replicas[publisher].pid, signal.SIGCONT)
    until(lambda: len(fleet.publishers()) == 1 and publisher not in fleet.publishers())

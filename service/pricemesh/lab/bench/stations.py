"""Where the microseconds of a price and of feedback go: every station on the way, timed alone, in process.

A group of 32 is taken together, as a busy city does; figures are for one call. What the socket, the kernel
and the loop take is not here: it is what `http` finds beyond.
"""

import gc
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pricemesh.city.configuration import load_settings
from pricemesh.city.loop import NOTHING_RECALLED
from pricemesh.core.ucb import choose
from pricemesh.http.asgi import Application
from pricemesh.lab.bench.load import city_environment, context
from pricemesh.lab.bench.ratios import Say, Suite, ratio
from pricemesh.serving.app import create_app
from pricemesh.store.commands import SaveFeedback

GROUP = 32
Station = Callable[[], Any]


def stations(*, quick: bool, say: Say) -> Suite:
    suite = Suite("stations", f"CPU of one call by station, groups of {GROUP}, SQLite; shares of their sum")
    with tempfile.TemporaryDirectory(prefix="pricemesh-bench-") as folder, opened(Path(folder)) as gate:
        for name, taken in stations_of(gate).items():
            say(name)
            _say(suite, name, _timed(taken, 3 if quick else 11, 20 if quick else 60))
    return suite


@contextmanager
def opened(folder: Path) -> Iterator[Application]:
    """A city in this process, ready to price."""
    gate = create_app(load_settings(None, city_environment(f"sqlite:///{folder}/city.db")))
    gate.pricing.open()
    try:
        yield gate
    finally:
        gate.pricing.database.close()


def stations_of(gate: Application) -> dict[str, dict[str, Station]]:
    pricing, calls, rng = gate.pricing, gate.traffic.calls, random.Random(0)
    admission = gate.admission
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"433")]
    bodies = [json.dumps(context(rng)).encode() for _ in range(GROUP)]
    quotes = [calls["/price"].read(body) for body in bodies]
    space = gate.pricing.settings.features.space
    contexts = space.rows(b"".join([quote.contexts for quote in quotes]))
    kept = [operation.rows for operation in pricing.decider.decide_all(quotes, NOTHING_RECALLED)]  # type: ignore[union-attr]
    told = json.dumps({"decision_id": "1a1e35eb412-344f1d5857-4191", "reward": 0.25}).encode()
    given = calls["/feedback"].read(told)
    results: list[Any] = []

    def admit(path: str) -> None:
        for _ in range(GROUP):
            request = admission.context("POST", path, headers)
            admission.admit(request)
            admission.finish(request, path, 200)

    def commit_prices() -> None:
        pricing.database.commit(pricing.decider.decide_all(quotes, NOTHING_RECALLED))  # type: ignore[arg-type]

    def commit_feedback() -> None:
        operations = pricing.decider.decide_all(quotes, NOTHING_RECALLED)
        pricing.database.commit(operations)  # type: ignore[arg-type]
        ids = [operation.rows[0].id for operation in operations]  # type: ignore[union-attr]
        told_now = [SaveFeedback(((id_, 0.25),), time.time(), False, 0.0) for id_ in ids]
        results[:] = pricing.database.commit(told_now).results

    commit_feedback()
    price = {
        "admission, metrics, log": lambda: admit("/price"),
        "parsing and validation": lambda: [calls["/price"].read(body) for body in bodies],
        "score and choose": lambda: choose(pricing.learner.score(contexts)),
        "rows": lambda: pricing.decider.decide_all(quotes, NOTHING_RECALLED),
        "insert and commit": commit_prices,
        "serialising": lambda: [calls["/price"].answer(None, rows) for rows in kept],
    }
    feedback = {
        "admission, metrics, log": lambda: admit("/feedback"),
        "parsing and validation": lambda: [calls["/feedback"].read(told) for _ in range(GROUP)],
        "prices to answer": commit_prices,
        "select, insert and commit": commit_feedback,
        "learning": lambda: pricing.live.learn([result[0].lesson for result in results]),
        "serialising": lambda: [calls["/feedback"].answer(given, result) for result in results],
    }
    return {"/price": price, "/feedback": feedback}


def _timed(taken: dict[str, Station], repetitions: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of CPU a call, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in taken}
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, run in taken.items():
                run()
                started = time.process_time()
                for _ in range(rounds):
                    run()
                seconds[name].append((time.process_time() - started) / rounds / GROUP)
    finally:
        gc.enable()
    return seconds


def _less(whole: Sequence[float], *parts: Sequence[float]) -> list[float]:
    return [max(0.0, one - sum(taken)) for one, *taken in zip(whole, *parts, strict=True)]


def taken_apart(call: str, costs: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Stations that can only be run with others have those taken off."""
    apart = dict(costs)
    if call == "/price":
        decided = costs["rows"]
        apart["insert and commit"] = _less(costs["insert and commit"], decided)
        apart["rows"] = _less(decided, costs["score and choose"])
    else:
        prices = apart.pop("prices to answer")
        apart["select, insert and commit"] = _less(costs["select, insert and commit"], prices)
    return apart


def _say(suite: Suite, call: str, seconds: Mapping[str, Sequence[float]]) -> None:
    apart = taken_apart(call, seconds)
    total = [sum(parts) for parts in zip(*apart.values(), strict=True)]
    for name, took in apart.items():
        said = f"{sorted(took)[len(took) // 2] * 1e6:.1f} µs"
        suite.ratios.append(ratio(f"{call}: {name}", took, "all stations", total, measured=said))

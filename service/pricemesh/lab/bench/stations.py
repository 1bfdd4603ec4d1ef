"""The CPU time of every station that a price or a feedback passes, each timed alone, in this process.

A station handles a group of 32 calls, as a busy city does; figures are for one call. Socket, kernel and event
loop are not measured here: the suite `http` includes them.
"""

import gc
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pricemesh.city.configuration import load_settings
from pricemesh.city.recalling import NOTHING_RECALLED
from pricemesh.core.ucb import choose
from pricemesh.http.asgi import Application
from pricemesh.lab.bench.load import city_environment, random_context
from pricemesh.lab.bench.ratios import Say, Suite, ratio
from pricemesh.serving.app import create_app
from pricemesh.store.commands import SaveFeedback, Unanswered

GROUP = 32
Station = Callable[[], Any]


def stations(*, quick: bool, say: Say) -> Suite:
    suite = Suite("stations", f"CPU of one call by station, groups of {GROUP}, SQLite; shares of their sum")
    with tempfile.TemporaryDirectory(prefix="pricemesh-bench-") as folder, open_city(Path(folder)) as city:
        for call, each in stations_of(city).items():
            say(call)
            _add_ratios(suite, call, _time_stations(each, 3 if quick else 11, 20 if quick else 60))
    return suite


@contextmanager
def open_city(folder: Path) -> Iterator[Application]:
    """A city in this process that can price."""
    city = create_app(load_settings(None, city_environment(f"sqlite:///{folder}/city.db")))
    city.pricing.open()
    try:
        yield city
    finally:
        city.pricing.database.close()


def stations_of(city: Application) -> dict[str, dict[str, Station]]:
    pricing, calls, admission = city.pricing, city.traffic.calls, city.admission
    decide, rng = pricing.decider.decide_all, random.Random(0)
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"433")]
    bodies = [json.dumps(random_context(rng)).encode() for _ in range(GROUP)]
    quotes = [calls["/price"].read(body) for body in bodies]
    space = city.pricing.settings.features.space
    contexts = space.rows(b"".join([quote.contexts for quote in quotes]))
    decisions = [save.rows for save in decide(quotes, NOTHING_RECALLED)]  # type: ignore[union-attr]
    # A new city chooses the lowest price for all; one that has learned counts decisions on every arm.
    arms = pricing.settings.shape.arms
    waiting = [Unanswered(i % arms, rows[0].vectors, rows[0].chance) for i, rows in enumerate(decisions)]
    feedback_body = json.dumps({"decision_id": "1a1e35eb412-344f1d5857-4191", "reward": 0.25}).encode()
    feedback_request = calls["/feedback"].read(feedback_body)
    results: list[Any] = []

    def admit(path: str) -> None:
        for _ in range(GROUP):
            request = admission.context("POST", path, headers)
            admission.admit(request)
            admission.finish(request, path, 200)

    def commit_prices() -> None:
        pricing.database.commit(decide(quotes, NOTHING_RECALLED))  # type: ignore[arg-type]

    def commit_feedback() -> None:
        saves = decide(quotes, NOTHING_RECALLED)
        pricing.database.commit(saves)  # type: ignore[arg-type]
        ids = [save.rows[0].id for save in saves]  # type: ignore[union-attr]
        feedback_now = [SaveFeedback(((id_, 0.25),), time.time(), False, 0.0) for id_ in ids]
        results[:] = pricing.database.commit(feedback_now).results

    commit_feedback()
    price = {
        "admission, metrics, log": lambda: admit("/price"),
        "parsing and validation": lambda: [calls["/price"].read(body) for body in bodies],
        "score and choose": lambda: choose(pricing.learner.score(contexts)),
        "rows": lambda: decide(quotes, NOTHING_RECALLED),
        "insert and commit": commit_prices,
        "counting until feedback": lambda: pricing.live.pend(waiting),
        "serialising": lambda: [calls["/price"].answer(None, rows) for rows in decisions],
    }
    feedback = {
        "admission, metrics, log": lambda: admit("/feedback"),
        "parsing and validation": lambda: [calls["/feedback"].read(feedback_body) for _ in range(GROUP)],
        "prices to answer": commit_prices,
        "select, insert and commit": commit_feedback,
        "learning": lambda: pricing.live.learn([result[0].lesson for result in results]),
        "serialising": lambda: [calls["/feedback"].answer(feedback_request, result) for result in results],
    }
    return {"/price": price, "/feedback": feedback}


def _time_stations(stations: dict[str, Station], repetitions: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of CPU for one call; the stations run in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in stations}
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, run in stations.items():
                run()
                started = time.process_time()
                for _ in range(rounds):
                    run()
                seconds[name].append((time.process_time() - started) / rounds / GROUP)
    finally:
        gc.enable()
    return seconds


def _less(whole: Sequence[float], *parts: Sequence[float]) -> list[float]:
    return [max(0.0, total - sum(costs)) for total, *costs in zip(whole, *parts, strict=True)]


def split_costs(call: str, costs: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """The cost of each station alone: a station that runs others first has their cost subtracted."""
    apart = dict(costs)
    if call == "/price":
        decision_costs = costs["rows"]
        apart["insert and commit"] = _less(costs["insert and commit"], decision_costs)
        apart["rows"] = _less(decision_costs, costs["score and choose"])
    else:
        prices = apart.pop("prices to answer")
        apart["select, insert and commit"] = _less(costs["select, insert and commit"], prices)
    return apart


def _add_ratios(suite: Suite, call: str, seconds: Mapping[str, Sequence[float]]) -> None:
    apart = split_costs(call, seconds)
    total = [sum(parts) for parts in zip(*apart.values(), strict=True)]
    for name, times in apart.items():
        figure = f"{median(times) * 1e6:.1f} µs"
        suite.ratios.append(ratio(f"{call}: {name}", times, "all stations", total, figure=figure))

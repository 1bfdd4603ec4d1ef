"""Other libraries, which store nothing: a decision in process, and the same work over HTTP."""

import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pricemesh.core.policies import Shape
from pricemesh.core.ucb import choose
from pricemesh.errors import MissingExtra
from pricemesh.lab.bench import baselines
from pricemesh.lab.bench.core import train_learner
from pricemesh.lab.bench.load import (
    ARMS,
    LOCAL,
    SHARED,
    Load,
    apply_load,
    baseline_command,
    city_command,
    city_environment,
    random_context,
    require_wrk,
    serve,
    write_requests,
)
from pricemesh.lab.bench.ratios import Say, Suite, microseconds, per_second, ratio
from pricemesh.lab.bench.stopwatch import race

NAMES = {"mabwiser": "MABWiser LinUCB", "vowpalwabbit": "Vowpal Wabbit squarecb"}


def peers(*, quick: bool, say: Say) -> Suite:
    suite = Suite("peers", f"Other libraries, K={ARMS} d={SHARED + LOCAL}; how many times as long they take")
    installed = {module: name for module, name in NAMES.items() if find_spec(module)}
    for module in NAMES.keys() - installed.keys():
        suite.notes.append(f"{NAMES[module]} left out: pip install 'pricemesh[bench]'")
    if not installed:
        return suite
    rng = np.random.default_rng(0)
    learner = train_learner("netpool", Shape(ARMS, SHARED, LOCAL), rng)
    x = rng.normal(size=SHARED + LOCAL) / 5
    contenders: dict[str, Callable[[], object]] = {"ours": lambda: choose(learner.score(x))}
    for module in installed:
        other = baselines.LIBRARIES[module]()
        for _ in range(500):
            other.learn(rng.normal(size=len(x)) / 5, int(rng.integers(ARMS)), float(rng.normal()))
        contenders[module] = lambda other=other: other.decide(x)  # type: ignore[misc]
    say("in process")
    times = race(contenders, repetitions=5 if quick else 15)
    for module, name in installed.items():
        seconds = times[module]
        what = f"{name}, a decision in process"
        suite.ratios.append(
            ratio(what, seconds, "score and choose", times["ours"], figure=microseconds(seconds))
        )
    try:
        require_wrk()
    except MissingExtra as fault:
        suite.notes.append(f"over HTTP left out: {fault}")
    else:
        _over_http(suite, installed, quick, say)
    return suite


def _over_http(suite: Suite, installed: dict[str, str], quick: bool, say: Say) -> None:
    rates: dict[str, list[Load]] = {"ours": [], **{module: [] for module in installed}}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-")))
        servers = {
            module: stack.enter_context(serve(baseline_command(module), folder)) for module in installed
        }
        environment = city_environment(f"sqlite:///{folder}/city.db")
        servers["ours"] = stack.enter_context(serve(city_command(), folder, environment))
        rng = random.Random(0)
        prices = write_requests(folder, "price", [("/price", random_context(rng)) for _ in range(500)])
        for repetition in range(2 if quick else 5):
            for name, server in servers.items():
                say(f"over HTTP, {repetition + 1} of {2 if quick else 5}")
                rates[name].append(apply_load(server, prices, 1.0 if quick else 2.0))
    ours = [load.per_second for load in rates["ours"]]
    for module, name in installed.items():
        theirs = [load.per_second for load in rates[module]]
        figure = f"{per_second(ours)} beside {per_second(theirs)}"
        what = "/price over HTTP, durable on SQLite"
        against = f"a FastAPI application around {name}"
        suite.ratios.append(ratio(what, ours, against, theirs, figure=figure, target="> 1"))

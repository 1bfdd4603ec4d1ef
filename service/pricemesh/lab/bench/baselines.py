"""The applications that a city is measured against over HTTP.

`bare` shows the limit of the HTTP server; `empty` has the models of a city and does nothing; the others
wrap a library and store nothing. Each runs under uvicorn: `python -m pricemesh.lab.bench.baselines NAME
PORT`.
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Protocol

import numpy as np
import uvicorn
from fastapi import FastAPI

from pricemesh.core.arrays import Array
from pricemesh.http import schemas
from pricemesh.lab.bench.load import ARMS, LOCAL, SHARED

_HEADERS = [(b"content-length", b"2")]


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with two bytes."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})


def _decision(id_: str, arm: int) -> schemas.Decision:
    return schemas.Decision(
        decision_id=id_,
        city="bench",
        arm=arm,
        price=8.0 + arm,
        estimate=0.0,
        radius=1.0,
        policy="none",
        limited_by=[],
        propensity=1.0,
    )


def empty() -> FastAPI:
    """Endpoints with the same request and response models that do nothing."""
    app = FastAPI()

    @app.post("/price")
    async def price(request: schemas.PriceRequest) -> schemas.Decision:  # noqa: ARG001
        return _decision("a", 1)

    @app.post("/feedback")
    async def feedback(request: schemas.FeedbackRequest) -> schemas.FeedbackReceipt:
        return schemas.FeedbackReceipt(
            decision_id=request.decision_id, reward=request.reward, learned=True, version=1
        )

    return app


class Library(Protocol):
    def decide(self, x: Array) -> int: ...

    def learn(self, x: Array, arm: int, reward: float) -> None: ...


class MabWiser:
    def __init__(self) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self._mab = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=0.7))
        self._mab.fit(np.arange(ARMS), np.zeros(ARMS), np.zeros((ARMS, SHARED + LOCAL)))

    def decide(self, x: Array) -> int:
        return int(self._mab.predict(x[None]))

    def learn(self, x: Array, arm: int, reward: float) -> None:
        self._mab.partial_fit([arm], [reward], x[None])


class VowpalWabbit:
    def __init__(self) -> None:
        from vowpalwabbit import Workspace

        self._vw = Workspace(f"--cb_explore {ARMS} --squarecb --quiet")

    def _line(self, x: Array) -> str:
        return "| " + " ".join(f"f{i}:{value:.6f}" for i, value in enumerate(x.tolist()))

    def decide(self, x: Array) -> int:
        return int(np.argmax(self._vw.predict(self._line(x))))

    def learn(self, x: Array, arm: int, reward: float) -> None:
        self._vw.learn(f"{arm + 1}:{-reward:.6f}:{1 / ARMS} {self._line(x)}")


LIBRARIES: dict[str, Callable[[], Library]] = {"mabwiser": MabWiser, "vowpalwabbit": VowpalWabbit}


def library_app(library: str) -> FastAPI:
    """A library behind the same models. Decisions are held in memory until their feedback."""
    app, learner, numbers = FastAPI(), LIBRARIES[library](), count()
    decisions: dict[str, tuple[Array, int]] = {}

    @app.post("/price")
    async def price(request: schemas.PriceRequest) -> schemas.Decision:
        x = np.array([*request.shared.values(), *request.local.values()])
        id_, arm = request.decision_id or f"{next(numbers):x}", learner.decide(x)
        decisions[id_] = (x, arm)
        return _decision(id_, arm)

    @app.post("/feedback")
    async def feedback(request: schemas.FeedbackRequest) -> schemas.FeedbackReceipt:
        learner.learn(*decisions[request.decision_id], request.reward)
        return schemas.FeedbackReceipt(
            decision_id=request.decision_id, reward=request.reward, learned=True, version=1
        )

    return app


def main(name: str, port: int) -> None:
    apps: dict[str, Callable[[], Any]] = {"bare": lambda: bare, "empty": empty}
    apps |= {library: partial(library_app, library) for library in LIBRARIES}
    uvicorn.run(apps[name](), port=port, access_log=False, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

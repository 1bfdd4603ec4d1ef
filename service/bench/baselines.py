"""What a city is measured against over HTTP: applications that do less, or the same by other means.

`bare` is the server's own limit; `empty` has a city's models and does nothing. Each runs under uvicorn as
`python -m service.bench.baselines NAME PORT`.
"""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from service import wire

_HEADERS = [(b"content-length", b"2")]


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Two bytes, whatever is asked."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})


def empty() -> FastAPI:
    """Endpoints with the same request and response models that do nothing."""
    app = FastAPI()

    @app.post("/price")
    async def price(request: wire.PriceRequest) -> wire.Decision:  # noqa: ARG001
        return wire.Decision(
            decision_id="a",
            city="b",
            arm=1,
            price=1.0,
            estimate=0.0,
            radius=1.0,
            policy="none",
            limited_by=[],
        )

    @app.post("/feedback")
    async def feedback(request: wire.FeedbackRequest) -> wire.Learned:
        return wire.Learned(decision_id=request.decision_id, reward=request.reward, learned=True, version=1)

    return app


def main(name: str, port: int) -> None:
    app: Any = {"bare": lambda: bare, "empty": empty}[name]()
    uvicorn.run(app, port=port, access_log=False, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

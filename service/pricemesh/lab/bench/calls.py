"""The calls that a city is loaded with: prices, batches of prices, feedback, and prices with feedback
between."""

import random
from pathlib import Path
from typing import NamedTuple

from pricemesh.lab.bench.load import Requests, Server, fresh_ids, random_context, write_requests

BATCH = 100  # decisions of one /price/batch
FEEDBACK_PER_SECOND = 20_000  # more than a city takes, so that no decision gets feedback twice


def price_requests(folder: Path) -> Requests:
    rng = random.Random(0)
    return write_requests(folder, "price", [("/price", random_context(rng)) for _ in range(500)])


def batch_requests(folder: Path) -> Requests:
    rng = random.Random(2)
    bodies = [{"requests": [random_context(rng) for _ in range(BATCH)]} for _ in range(20)]
    return write_requests(folder, "batch", [("/price/batch", body) for body in bodies])


class FeedbackRequests(NamedTuple):
    feedback: Requests
    mixed: Requests  # prices and feedback in turn


def feedback_requests(
    server: Server, folder: Path, name: str, seconds: float, *, sales: bool = False
) -> FeedbackRequests:
    """Feedback for decisions that have none yet, enough for `seconds` of each kind."""
    rng = random.Random(1)
    items = [
        (
            "/feedback",
            {"decision_id": id_, **({"sold": rng.randrange(2)} if sales else {"reward": rng.random()})},
        )
        for id_ in fresh_ids(server.http, rng, round(1.5 * FEEDBACK_PER_SECOND * seconds))
    ]
    third = len(items) // 3
    mixed = [call for item in items[:third] for call in (("/price", random_context(rng)), item)]
    return FeedbackRequests(
        write_requests(folder, f"{name}-feedback", items[third:]),
        write_requests(folder, f"{name}-mixed", mixed),
    )

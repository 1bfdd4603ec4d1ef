"""Reports the true regret of a drive to its cities, which show it on their page."""

import asyncio
import json
from contextlib import suppress
from typing import Any

from pricemesh.errors import InvalidParameter
from pricemesh.lab.caller import CallFailed
from pricemesh.lab.drive import Drive
from pricemesh.lab.tally import Tally

INTERVAL_SECONDS = 1.0


async def report(together: Drive, alone: Drive | None = None) -> None:
    """Report once a second until cancelled. A city that does not answer is skipped."""
    while True:
        body = json.dumps({"cities": _cities(together, alone)}).encode()
        for caller in together.callers:
            with suppress(CallFailed):
                await caller.call("POST", "/lab/truth", body)
        await asyncio.sleep(INTERVAL_SECONDS)


async def check_accepted(together: Drive) -> None:
    """Raise InvalidParameter if a city refuses the report."""
    body = json.dumps({"cities": _cities(together, None)}).encode()
    for caller in together.callers:
        status, answer = await caller.call("POST", "/lab/truth", body)
        if status != 200:
            raise InvalidParameter(f"--truth: {caller.url} answers {status}: {json.loads(answer)['detail']}")


def _cities(together: Drive, alone: Drive | None) -> list[dict[str, Any]]:
    others = [None] * len(together.tallies) if alone is None else alone.tallies
    return [
        {"city": one.town.name, "together": _regret(one), "alone": None if other is None else _regret(other)}
        for one, other in zip(together.tallies, others, strict=True)
    ]


def _regret(tally: Tally) -> dict[str, Any]:
    return {"decisions": tally.decisions, "regret": tally.regret}

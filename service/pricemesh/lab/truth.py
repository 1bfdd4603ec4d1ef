"""What a drive knows of the truth, told to the cities it drives for their page to show."""

import asyncio
import json
from contextlib import suppress
from typing import Any

from pricemesh.errors import InvalidParameter
from pricemesh.lab.caller import CallFailed
from pricemesh.lab.drive import Drive, Tally

EVERY_SECONDS = 1.0


async def report(together: Drive, alone: Drive | None = None) -> None:
    """Once a second until cancelled; a city that does not hear it goes without."""
    while True:
        told = json.dumps({"cities": _cities(together, alone)}).encode()
        for caller in together.callers:
            with suppress(CallFailed):
                await caller.call("POST", "/lab/truth", told)
        await asyncio.sleep(EVERY_SECONDS)


async def check_taken(together: Drive) -> None:
    """InvalidParameter where a city takes no truth."""
    told = json.dumps({"cities": _cities(together, None)}).encode()
    for caller in together.callers:
        status, answer = await caller.call("POST", "/lab/truth", told)
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

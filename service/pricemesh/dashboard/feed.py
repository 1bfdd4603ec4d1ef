"""The live feed: a frame a second, made once for all who listen, and only while somebody does.

Prices never wait for it. Frames take a small share of the time whatever their size, readers are few, and
one that does not keep up is dropped.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from pydantic_core import to_json

from pricemesh.city.pricing import Pricing
from pricemesh.dashboard.lab import Lab
from pricemesh.dashboard.seconds import Seconds
from pricemesh.errors import PricemeshError, TooManyReaders
from pricemesh.gossip.mesh import Gossip

log = logging.getLogger("pricemesh")

PERIOD_SECONDS = 1.0
SHARE_OF_TIME = 0.05  # that making frames may take
LONGEST_PAUSE_SECONDS = 10.0
MOST_QUEUED = 8  # frames that a reader may be behind
RATE_OVER = 10  # frames
MOST_SECONDS = 15  # in a frame: more than the longest pause
LATEST = 6  # decisions


class Reader:
    """Somebody who listens: the events that wait for it, None being the last."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.dropped = asyncio.Event()

    def give(self, event: bytes | None) -> None:
        if self.events.qsize() >= MOST_QUEUED:
            self.dropped.set()
        else:
            self.events.put_nowait(event)


class Feed:
    def __init__(
        self, pricing: Pricing, gossip: Gossip, lab: Lab, state: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        self._pricing = pricing
        self._lab = lab
        self._state = state
        self._most_readers = pricing.settings.limits.event_readers
        self._seconds = Seconds(pricing, gossip)
        self._readers: set[Reader] = set()
        self._places_taken = 0
        self._totals: deque[tuple[float, int, int]] = deque(maxlen=RATE_OVER)
        self._told = 0  # looks that frames have told of
        self._frame, self._made_at, self._took = b"", 0.0, 0.0
        self._making = asyncio.Lock()

    async def run(self) -> None:
        """Look once a second, and tell whoever listens; when the city is told to stop, let them go."""
        self._seconds.begin()
        due = time.monotonic()
        while not self._pricing.draining:
            await asyncio.sleep(min(PERIOD_SECONDS, 0.25))
            if time.monotonic() < due:
                continue
            due = time.monotonic() + PERIOD_SECONDS - 0.01
            self._seconds.look(time.time())
            if self._readers and time.monotonic() - self._made_at >= self._pause:
                await self._make()
                self._tell(self._frame)
        self._tell(None)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        """One more reader, as long as the context lasts: first what has happened, then frame by frame."""
        if self._places_taken >= self._most_readers:
            raise TooManyReaders(
                f"{self._most_readers} readers listen already (limits.event_readers): close a page"
            )
        reader = Reader()
        self._places_taken += 1
        try:
            reader.give(self._history())
            if time.monotonic() - self._made_at > max(1.5 * PERIOD_SECONDS, self._pause):
                await self._make()
            reader.give(self._frame)
            self._readers.add(reader)
            if self._pricing.draining:
                reader.give(None)
            yield reader
        finally:
            self._readers.discard(reader)
            self._places_taken -= 1

    @property
    def _pause(self) -> float:
        """Until a frame may be made again, after what the last one took."""
        return min(self._took / SHARE_OF_TIME, LONGEST_PAUSE_SECONDS)

    def _tell(self, event: bytes | None) -> None:
        for reader in list(self._readers):
            reader.give(event)

    async def _make(self) -> None:
        """The next frame; of several who ask for one at the same time the first makes it."""
        asked_at = time.monotonic()
        async with self._making:
            if self._made_at > asked_at:
                return
            started = time.monotonic()
            try:
                self._frame = _event("frame", await self._content())
            except PricemeshError as fault:
                self._frame = _event("fault", {"at": time.time(), "detail": str(fault)})
            except Exception:
                log.exception("unforeseen, in a frame")
                self._frame = _event("fault", {"at": time.time(), "detail": "an unforeseen fault, logged"})
            self._made_at = time.monotonic()
            self._took = self._made_at - started

    async def _content(self) -> dict[str, Any]:
        state = await self._state()
        latest = await self._pricing.latest_decisions(limit=LATEST)
        now = time.time()
        rates = self._rates(now, state["decisions"], state["feedback"])
        # Whoever listens has heard a frame lately, and who has just come was told the history.
        seconds = self._seconds.since(max(self._told, self._seconds.looks - MOST_SECONDS))
        self._told = self._seconds.looks
        return {
            "at": round(now, 3),
            "state": state,
            "rates": rates,
            "seconds": seconds,
            "latest": [
                {
                    "decision_id": kept.decision.id,
                    "made_at": kept.decision.occasion.made_at,
                    "arm": kept.decision.arm,
                    "price": kept.decision.price,
                    "reward": kept.feedback.reward if kept.feedback else None,
                }
                for kept in latest
            ],
            "truth": self._lab.latest,
        }

    def _rates(self, now: float, decisions: int, feedback: int) -> dict[str, float] | None:
        """Per second, over the latest frames; None where there is nothing recent to compare with."""
        while self._totals and now - self._totals[0][0] > 2 * RATE_OVER * PERIOD_SECONDS:
            self._totals.popleft()
        then = self._totals[0] if self._totals else None
        self._totals.append((now, decisions, feedback))
        if then is None or now <= then[0]:
            return None
        apart = now - then[0]
        return {"decisions": (decisions - then[1]) / apart, "feedback": (feedback - then[2]) / apart}

    def _history(self) -> bytes:
        return _event(
            "history",
            {
                "at": round(time.time(), 3),
                "seconds": self._seconds.since(0),
                "versions": self._seconds.versions,
                "truth": self._lab.marks,
            },
        )


def _event(name: str, content: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content))


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

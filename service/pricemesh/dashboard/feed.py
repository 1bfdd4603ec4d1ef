"""The live feed: a frame a second, built once for all readers, and only while there is one.

No price waits for it: building frames takes a bounded share of the time, the number of readers is limited,
and a reader that does not keep up is dropped. `events.py` carries the feed over HTTP.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_core import to_json

from pricemesh.city.pricing import Pricing
from pricemesh.dashboard.history import History
from pricemesh.dashboard.truth import TruthReports
from pricemesh.errors import PricemeshError, TooManyReaders
from pricemesh.gossip.mesh import Gossip

log = logging.getLogger("pricemesh")

PERIOD_SECONDS = 1.0
MAX_SLEEP_SECONDS = 0.25  # how late the feed may notice that the city stops
MAX_SHARE_OF_TIME = 0.05  # for building frames
MAX_PAUSE_SECONDS = 10.0  # between frames, however long they take to build
MAX_QUEUED_EVENTS = 8  # of a reader
RATE_WINDOW_FRAMES = 10
MAX_SECONDS_IN_FRAME = 15  # more than the longest pause
LATEST_DECISIONS = 6


class EventReader:
    """One open page: the events that it has not been sent yet. None is the last."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.overflow = asyncio.Event()  # set when it has fallen too far behind

    def put(self, event: bytes | None) -> None:
        if self.events.qsize() >= MAX_QUEUED_EVENTS:
            self.overflow.set()
        else:
            self.events.put_nowait(event)


class Feed:
    def __init__(
        self,
        pricing: Pricing,
        gossip: Gossip,
        truth: TruthReports,
        state: Callable[[], Awaitable[dict[str, Any]]],
    ) -> None:
        self._pricing = pricing
        self._truth = truth
        self._state = state
        self._clock, self._monotonic = pricing.runtime.clock, pricing.runtime.monotonic
        self._max_readers = pricing.settings.limits.event_readers
        self._history = History(pricing, gossip)
        self._record_due = -math.inf  # monotonic
        self._readers: set[EventReader] = set()
        self._reader_count = 0  # with those that wait for their first frame
        self._totals: deque[tuple[float, int, int]] = deque(maxlen=RATE_WINDOW_FRAMES)  # monotonic time first
        self._next_second = 0  # number of the first second that no frame has held yet
        self._frame = b""
        self._built_at = -math.inf  # monotonic
        self._build_seconds = 0.0
        self._build_lock = asyncio.Lock()

    async def run(self) -> None:
        """Until the city stops; then let the readers go."""
        self._history.start()
        while not self._pricing.draining:
            await asyncio.sleep(min(PERIOD_SECONDS, MAX_SLEEP_SECONDS))
            await self.step()
        self._put(None)

    async def step(self) -> None:
        """Record a second if one is over, and send a frame if one is due."""
        now = self._monotonic()
        if now < self._record_due:
            return
        self._record_due = now + PERIOD_SECONDS - 0.01
        self._history.record(self._clock())
        if self._readers and now - self._built_at >= self._pause_seconds:
            await self._build()
            self._put(self._frame)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[EventReader]:
        """One more reader while the context lasts. It gets the history first, then every frame."""
        if self._reader_count >= self._max_readers:
            raise TooManyReaders(
                f"the live feed has {self._max_readers} readers already (limits.event_readers): close a page"
            )
        reader = EventReader()
        self._reader_count += 1
        try:
            reader.put(self._history_event())
            if self._monotonic() - self._built_at > max(1.5 * PERIOD_SECONDS, self._pause_seconds):
                await self._build()
            reader.put(self._frame)
            self._readers.add(reader)
            if self._pricing.draining:
                reader.put(None)
            yield reader
        finally:
            self._readers.discard(reader)
            self._reader_count -= 1

    @property
    def _pause_seconds(self) -> float:
        """How long to wait after the last frame, given the time it took to build."""
        return min(self._build_seconds / MAX_SHARE_OF_TIME, MAX_PAUSE_SECONDS)

    def _put(self, event: bytes | None) -> None:
        for reader in self._readers:
            reader.put(event)

    async def _build(self) -> None:
        """Build the next frame. Of several callers at the same time, the first one builds it for all."""
        requested_at = self._monotonic()
        async with self._build_lock:
            if self._built_at > requested_at:
                return
            started_at = self._monotonic()
            try:
                self._frame = _event("frame", await self._content())
            except PricemeshError as fault:
                self._frame = _event("fault", {"at": self._clock(), "detail": str(fault)})
            except Exception:
                log.exception("cannot build a frame of the live feed")
                detail = "a frame could not be built; the city's log says why"
                self._frame = _event("fault", {"at": self._clock(), "detail": detail})
            self._built_at = self._monotonic()
            self._build_seconds = self._built_at - started_at

    async def _content(self) -> dict[str, Any]:
        state = await self._state()
        latest = await self._pricing.latest_decisions(limit=LATEST_DECISIONS)
        now = self._clock()
        rates = self._rates(state["decisions"], state["feedback"])
        # Every reader has had the frame before this one, or the history a moment ago.
        first = max(self._next_second, self._history.length - MAX_SECONDS_IN_FRAME)
        self._next_second = self._history.length
        return {
            "at": round(now, 3),
            "state": state,
            "rates": rates,
            "seconds": self._history.since(first),
            "latest": [
                {
                    "decision_id": row.decision.id,
                    "made_at": row.decision.occasion.made_at,
                    "arm": row.decision.arm,
                    "price": row.decision.price,
                    "reward": row.feedback.reward if row.feedback else None,
                    "sold": row.feedback.sold if row.feedback else None,
                }
                for row in latest
            ],
            "truth": self._truth.latest,
        }

    def _rates(self, decisions: int, feedback: int) -> dict[str, float] | None:
        """Per second, over the latest frames; None if no frame is recent enough to compare with."""
        now = self._monotonic()
        while self._totals and now - self._totals[0][0] > 2 * RATE_WINDOW_FRAMES * PERIOD_SECONDS:
            self._totals.popleft()
        oldest = self._totals[0] if self._totals else None
        self._totals.append((now, decisions, feedback))
        if oldest is None or now <= oldest[0]:
            return None
        seconds = now - oldest[0]
        return {
            "decisions": (decisions - oldest[1]) / seconds,
            "feedback": (feedback - oldest[2]) / seconds,
        }

    def _history_event(self) -> bytes:
        return _event(
            "history",
            {
                "at": round(self._clock(), 3),
                "seconds": self._history.since(0),
                "versions": self._history.versions,
                "truth": self._truth.marks,
            },
        )


def _event(name: str, content: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content))

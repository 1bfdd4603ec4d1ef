"""What a city's next letter says, given what it knows and what it published last. Pure: time is passed in.

A letter brings the blocks up to date that have news (`core/news.py`); the others stay as they were published.
What is known and is not news waits, but not for ever.
"""

from math import inf

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.news import changes, news, updated
from pricemesh.core.policies import Learner
from pricemesh.core.summary import Summary


class Drafts:
    def __init__(self, factor: float, max_wait_seconds: float = inf) -> None:
        self._factor = factor
        self._max_wait_seconds = max_wait_seconds
        self._waiting_since: float | None = None  # since when something is known and unpublished

    def next(
        self,
        learner: Learner,
        last: Summary,
        numbers: Array,
        version: int,
        now: float,
        *,
        everything: bool = False,
    ) -> Summary | None:
        """The summary to publish after `last`, where the city knows `numbers` at `version`; None where there
        is no news. `everything` publishes whatever changed."""
        before = last.numbers
        changed = changes(learner, before, numbers)
        if not changed.any():
            self._waiting_since = None
            return None
        if self._waiting_since is None:
            self._waiting_since = now
        blocks = news(learner, before, numbers, self._factor)
        if everything or now - self._waiting_since >= self._max_wait_seconds:
            blocks = blocks | changed
        if not blocks.any():
            return None
        if not (changed & ~blocks).any():
            self._waiting_since = None
        # A letter that publishes what the last one left out may come without a new lesson.
        version = max(version, last.version + 1)
        changed_at = np.where(blocks, version, last.version - lags_of(last, len(blocks)))
        lags = tuple((version - changed_at).tolist())
        mixed = updated(learner.layout, before, numbers, blocks)
        return Summary.of(last.origin, last.epoch, version, last.fingerprint, mixed, lags)


def lags_of(summary: Summary, blocks: int) -> Ints:
    return np.array(summary.lags or (0,) * blocks, dtype=np.int64)

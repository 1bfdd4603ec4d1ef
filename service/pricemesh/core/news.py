"""News: which blocks of a city's summary its next letter brings up to date, and which stay as they were.

One rule for the simulator and for the service. A block has news when its information has grown by the factor
`news`: log|I + L_now| - log|I + L_sent| > log(news). A young city publishes every block that changed; with
the factor 1 every change publishes all blocks.
"""

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.policies.learner import Learner
from pricemesh.core.summary import HEADER_BYTES, Layout

EVERY_CHANGE = 1.0
YOUNG_LESSONS = 40  # until it has learned so many, a city publishes every change

DIFFERENCE_BYTES = 36  # at most, of a difference on the wire without name, blocks and seal
LAG_BYTES = 2  # of each block

Flags = NDArray[np.bool_]


def changes(learner: Learner, last: Array, present: Array) -> Flags:
    """Which blocks have learned something since they were published, (..., B). Counts tell: a restart repeats
    the other numbers only up to rounding, and an arm's noise also depends on other arms. Ticks of a policy
    that mixes peers change all blocks."""
    layout = learner.layout
    arms = layout.part("count", last) != layout.part("count", present)
    if learner.mixes_peers:
        arms = np.ones_like(arms)
    return _with_common_block(layout, arms)


def news(learner: Learner, last: Array, present: Array, factor: float) -> Flags:
    """Which blocks the next letter brings up to date, (..., B), where `last` was published and `present` is
    what the city knows: summaries as numbers (..., size)."""
    layout = learner.layout
    changed = changes(learner, last, present)
    if factor <= EVERY_CHANGE:
        return np.broadcast_to(changed.any(axis=-1, keepdims=True), changed.shape)
    before, now = layout.unpack(last), layout.unpack(present)
    sent, known = learner.volumes(before), learner.volumes(now)
    if sent is None or known is None:
        return changed
    has_grown: Flags = known - sent > np.log(factor)
    is_young = now["count"].sum(axis=-1, keepdims=True) < YOUNG_LESSONS
    flags: Flags = changed & (_with_common_block(layout, has_grown) | is_young)
    return flags


def updated(layout: Layout, last: Array, present: Array, blocks: Flags) -> Array:
    """The numbers of the next letter: `present` in these blocks, `last` in the others."""
    return np.where(blocks[..., layout.blocks], present, last)


def bytes_of_news(layout: Layout, blocks: Flags) -> Ints:
    """The bytes of letters that bring these blocks (..., B) up to date, without name and seal, (...,). Where
    all blocks do, the whole summary travels, else a difference; nothing where there is no news."""
    numbers = np.bincount(layout.blocks, minlength=layout.block_count)
    difference = DIFFERENCE_BYTES + LAG_BYTES * layout.block_count + 8 * (blocks @ numbers)
    whole = HEADER_BYTES + 8 * layout.size
    return np.where(blocks.all(axis=-1), whole, np.where(blocks.any(axis=-1), difference, 0))


def _with_common_block(layout: Layout, arms: Flags) -> Flags:
    """Numbers that belong to no arm go with those of any arm."""
    if layout.block_count == layout.arms:
        return arms
    return np.concatenate([arms, arms.any(axis=-1, keepdims=True)], axis=-1)

"""The verbs every learner has: score a context, learn a reward, summarise, absorb a group's summaries.

A learner holds one city (batch `()`) or many of the same group structure (batch `(..., n)`: any
leading axes such as seeds and groups, then the n cities of a group). The same code serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from pricemesh.core.arrays import Array, Ints, checked_arm, checked_context, checked_reward, positive
from pricemesh.core.attribution import Attribution, by_arm
from pricemesh.core.ridge import Index
from pricemesh.core.summary import Field, Layout, Parts, Summary
from pricemesh.core.ucb import Score
from pricemesh.errors import BadSummary, InvalidContext, InvalidParameter


@dataclass(frozen=True)
class Shape:
    """How many arms, shared features c and local features s, and which batch of cities."""

    arms: int
    shared: int
    local: int
    batch: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.arms < 1 or self.shared < 1 or self.local < 0:
            raise InvalidParameter(
                "a learner needs at least one arm, one shared feature and no negative number of "
                f"local ones, not {self.arms}, {self.shared} and {self.local}"
            )

    @property
    def dim(self) -> int:
        return self.shared + self.local

    @property
    def alone(self) -> bool:
        return self.batch == ()


class Learner:
    """What all learners have in common: the checks, and where a city's chosen arm lies in the arrays."""

    fields: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.layout = Layout(shape.arms, shape.shared, self.fields)
        self._context_shape = (*shape.batch, shape.dim)
        # How much each city of the group counts since the last absorb, and who they are: (..., K, J)
        # where all receivers weigh alike, else (..., K, I, J), receiver first.
        self.weights: Array = np.ones((*shape.batch[:-1], shape.arms, 1))
        self.origins: tuple[str, ...] | None = None
        self.attribution = Attribution()
        self._rows: Index = tuple(np.indices(shape.batch, sparse=True)) if shape.batch else ()
        # Where in a group's summaries this learner's cities stand: first, or all of them.
        self._receivers = slice(0, 1) if shape.alone else slice(None)

    def score(self, x: Any) -> Score:
        """Every arm's estimate and radius for the context x (..., d). A learner of one city also takes
        several contexts at once, (m, d), and gives (m, K)."""
        return self._score(checked_context(x, self._context_shape))

    def score_alone(self, x: Any) -> Score:
        """The same by own data alone, as if no peer had told anything. Where own parameters hold what peers
        told (`mixes`), it cannot be taken out again, and only the radius is the city's own."""
        return self._score_alone(checked_context(x, self._context_shape))

    def learn(self, x: Any, arm: Any, reward: Any) -> None:
        """Take in the reward of `arm` for the context x, in every city of the batch."""
        batch = self.shape.batch
        checked = checked_context(x, self._context_shape)
        if checked.shape != self._context_shape:
            raise InvalidContext("one context is learned at a time")
        value = checked_reward(reward, batch)
        at = (*self._rows, checked_arm(arm, self.shape.arms, batch))
        self._learn(at, checked, value)

    def summarise(self) -> Parts:
        """What peers need to know: arrays that start with (..., K), named as in `fields`. They may be the
        learner's own, as they are now; `numbers` is a copy."""
        return {}

    def absorb(self, group: Parts, origins: tuple[str, ...] | None = None) -> None:
        """Take in the newest summaries of the whole group, stacked before the arms: (..., J, K, ...).

        A learner of one city finds its own summary first and its peers' after it; `origins` names
        them, so that peers may come and go. A batch is itself the group.
        """
        self.adopt(self.fold(group, origins))

    def fold(self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False) -> Any:
        """The work of `absorb` that leaves the learner as it is: it may be done elsewhere meanwhile.
        `again`, after a restart: peers count as they did, and nothing moves."""

    def adopt(self, folded: Any) -> None:
        """Let what was folded count, beside all own learning until now."""

    def parts(self, x: Array, arms: Ints) -> tuple[Array, Array]:
        """For m contexts (m, d) and the arms chosen, each peer's part of the estimate and of the radius,
        (m, J) each, J as in `told`; what is left of either is the city's own part."""
        estimate = np.zeros((len(x), len(self.attribution.origins)))
        radius = np.zeros_like(estimate)
        if self.attribution.origins:
            for arm, rows in by_arm(arms):
                estimate[rows], radius[rows] = self._parts(x[rows], arm)
        return estimate, radius

    def check(self, parts: Parts, version: int, longest_square: float, largest_reward: float) -> None:
        """Refuse a peer's summary that no honest city could have made: shared contexts there have at most
        the squared length `longest_square`, rewards at most the size `largest_reward`."""
        counts = parts["count"]
        refuse_if(not (counts >= 0).all() or (counts != np.round(counts)).any(), "counts are whole numbers")
        self._check(parts, version, longest_square, largest_reward)

    def weights_of(self, origin: str) -> list[float]:
        """How much this city's peer counted at the last absorb, by arm; nothing if it was not there."""
        if self.origins is None or origin not in self.origins:
            return []
        of_one: list[float] = self.weights[..., self.origins.index(origin)].ravel().tolist()
        return of_one

    def shares(self) -> dict[str, float]:
        """Of all that this one city goes by on the shared part, each peer's share, over all arms."""
        return {}

    def memory(self) -> dict[str, Array]:
        """What ticks have changed that no later tick brings back."""
        return {}

    def recall(self, origins: tuple[str, ...], memory: dict[str, Array]) -> None:
        """Go on from a `memory`, kept when the group was `origins`."""

    @property
    def mixes(self) -> bool:
        """Whether absorbing changes what this city itself tells."""
        return False

    def state(self) -> dict[str, Array]:
        """What must be kept for this learner to go on after a restart: own learning, not the peers'."""
        raise NotImplementedError

    def restore(self, state: dict[str, Array]) -> None:
        """Go on from a `state`; peers count again with the next absorb."""
        raise NotImplementedError

    def numbers(self) -> Array:
        """The summary as it travels: (..., layout.size)."""
        return self.layout.pack(self.summarise())

    def absorb_summaries(self, city: str, held: Mapping[str, Summary], *, again: bool = False) -> None:
        """Absorb the newest summaries that this one city holds; its own comes from the learner itself.
        The order in which they arrived leaves no trace."""
        self.adopt(self.fold(*self.stack_summaries(city, held), again=again))

    def stack_summaries(self, city: str, held: Mapping[str, Summary]) -> tuple[Parts, tuple[str, ...]]:
        """Own summary and the peers', stacked, and whose they are; nothing in them is the learner's own."""
        peers = [held[origin] for origin in sorted(held) if origin != city]
        for peer in peers:
            if peer.numbers.size != self.layout.size:
                raise BadSummary(
                    f"{peer.origin} sent {peer.numbers.size} numbers, a summary here has {self.layout.size}"
                )
            if not np.isfinite(peer.numbers).all():
                raise BadSummary(f"{peer.origin} sent numbers that are not finite")
        stack = np.stack([self.numbers(), *(peer.numbers for peer in peers)])
        return self.layout.unpack(stack), (city, *(peer.origin for peer in peers))

    def _score(self, x: Array) -> Score:
        raise NotImplementedError

    def _score_alone(self, x: Array) -> Score:
        raise NotImplementedError

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        raise NotImplementedError

    def _parts(self, x: Array, arm: int) -> tuple[Array, Array]:
        raise NotImplementedError

    def _check(self, parts: Parts, version: int, longest_square: float, largest_reward: float) -> None:
        raise NotImplementedError

    def _per_city(self, folded: Array) -> Array:
        """(..., I, K, ...) of the receivers as this learner's own batch: (..., K, ...)."""
        return folded[0] if self.shape.alone else folded


def refuse_if(wrong: object, said: str) -> None:
    if wrong:
        raise BadSummary(said)


def refuse_beyond(size: Array, most: Array, said: str) -> None:
    refuse_if(not (size <= most * (1 + 1e-9) + 1e-9).all(), said)


def refuse_infinite(*folded: Array) -> None:
    """Of numbers that are each within bounds, a sum can still overflow."""
    refuse_if(not all(np.isfinite(part).all() for part in folded), "peers' numbers overflow when added up")


def largest(vectors: Array) -> Array:
    sizes: Array = np.abs(vectors).max(axis=-1)
    return sizes


def spectrum_of(matrices: Array) -> Array:
    """Eigenvalues in ascending order."""
    values: Array = np.linalg.eigvalsh(matrices)  # type: ignore[assignment]
    return values


class Policy(Protocol):
    """A policy is its parameters, checked; it makes learners."""

    name: ClassVar[str]

    @property
    def alpha(self) -> float: ...

    def learner(self, shape: Shape) -> Learner: ...


@dataclass(frozen=True, kw_only=True)
class RidgeParameters:
    """Exploration and regularisation, which all ridge policies have."""

    alpha: float = 0.7
    ridge: float = 1.0

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        positive("ridge", self.ridge)

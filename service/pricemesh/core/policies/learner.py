"""The interface of all learners: score a context, learn a reward, summarise, absorb a group's summaries.

A learner holds one city (batch `()`) or many (batch `(..., n)`: leading axes such as seeds and groups,
then the n cities of a group). The same code serves both.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from pricemesh.core.arrays import (
    Array,
    Ints,
    checked_arm,
    checked_context,
    checked_reward,
    not_negative,
    one_of,
    positive,
)
from pricemesh.core.attribution import Attribution, by_arm
from pricemesh.core.choice import Sampling
from pricemesh.core.demand.prediction import Prediction
from pricemesh.core.ladder import Ladder
from pricemesh.core.peer_rows import Group, PeerRows
from pricemesh.core.policies.checks import log_determinants, refuse_if
from pricemesh.core.ridge import Index
from pricemesh.core.summary import Field, Layout, Parts, Summary
from pricemesh.core.ucb import Score
from pricemesh.errors import InvalidContext, InvalidParameter


@dataclass(frozen=True)
class Shape:
    """The number of arms K, of shared features c and local features s, and the batch of cities; in cities of
    sales also what the arms cost."""

    arms: int
    shared: int
    local: int
    batch: tuple[int, ...] = ()
    ladder: Ladder | None = None

    def __post_init__(self) -> None:
        if self.arms < 1 or self.shared < 1 or self.local < 0:
            raise InvalidParameter(
                "a learner needs at least one arm, at least one shared feature and zero or more local "
                f"features, not {self.arms}, {self.shared} and {self.local}"
            )

    @property
    def dim(self) -> int:
        """d = c + s."""
        return self.shared + self.local

    @property
    def is_one_city(self) -> bool:
        return self.batch == ()


class Decided(NamedTuple):
    """What is known of the decision that a reward belongs to."""

    chance: Any = None  # of a sale, as `Learner.chances` said
    pending: bool = False  # counted by `Learner.pend`


class Learner:
    """The checks and the indexing that all learners share; a subclass implements one policy."""

    fields: ClassVar[tuple[Field, ...]] = ()
    learns_sales: ClassVar[bool] = False  # the share of units sold, in [0, 1], in place of a reward

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.layout = self._layout()
        self._context_shape = (*shape.batch, shape.dim)
        # The weight of each city of the group at the last absorb, in the order of `origins`: (..., K, J)
        # if all receivers use the same weights, else (..., K, I, J), receiver first.
        self.weights: Array = np.ones((*shape.batch[:-1], shape.arms, 1))
        self.origins: tuple[str, ...] | None = None
        self.attribution = Attribution()
        self._rows: Index = tuple(np.indices(shape.batch, sparse=True)) if shape.batch else ()
        # Which of a group's summaries are this learner's own: the first, or in a batch all of them.
        self._receivers = slice(0, 1) if shape.is_one_city else slice(None)
        self.sampling: Sampling | None = None  # None: the highest upper bound is chosen
        # A usual reward: rewards are divided by it, estimates and radii multiplied.
        self.unit = 1.0

    @property
    def is_unit_free(self) -> bool:
        """Whether rewards times any positive constant lead to the same decisions."""
        return self.learns_sales

    def score(self, x: Any) -> Score:
        """Every arm's estimate and radius (..., K) for the context x (..., d). A learner of one city also
        accepts several contexts (m, d) and returns (m, K)."""
        return self._in_unit(self._score(checked_context(x, self._context_shape)))

    def score_alone(self, x: Any) -> Score:
        """The score from own data only, without the peers. If `mixes_peers`, own and peers' estimates cannot
        be separated, and only the radius is without the peers."""
        return self._in_unit(self._score_alone(checked_context(x, self._context_shape)))

    def _in_unit(self, score: Score) -> Score:
        unit = self.unit
        return score if unit == 1.0 else Score(unit * score.estimate, unit * score.radius)

    def chances(self, x: Array, arms: Ints) -> Array | None:
        """The chance of a sale that the estimates of these arms assume, (m,) for m contexts (m, d) of one
        city, (...) for a batch; None if the policy does not model it."""

    def curve_at(self, x: Any, prices: Array) -> tuple[Prediction, Prediction] | None:
        """What one city predicts of a sale at any prices (m,) for one context (d,): pooled, and by own data
        alone. None if the policy does not model it."""

    def learn(self, x: Any, arm: Any, reward: Any, chance: Any = None, *, pending: bool = False) -> None:
        """Learn the reward of `arm` for the context x, in every city of the batch. `chance` is what `chances`
        said at the decision; `pending` says that `pend` has counted the decision."""
        batch = self.shape.batch
        context = checked_context(x, self._context_shape)
        if context.shape != self._context_shape:
            raise InvalidContext("learn takes one context at a time")
        value = checked_reward(reward, batch)
        if self.unit != 1.0:
            value = value / self.unit
        at = (*self._rows, checked_arm(arm, self.shape.arms, batch))
        self._learn(at, context, value, Decided(chance, pending))

    @contextmanager
    def learning_many(self) -> Iterator[None]:
        """Around many calls of `learn` without a score between them: what only scores need may be computed
        once, at the end. The sums are those of the same calls without it, to the last bit."""
        yield

    def learn_at_price(self, x: Any, price: float, reward: Any, chance: float | None = None) -> None:
        """Learn of a price that is no arm's; only where `reads_price(price)`."""
        raise NotImplementedError

    def reads_price(self, price: float) -> bool:  # noqa: ARG002
        """Whether this learner can learn of a price that is no arm's."""
        return False

    # Decisions without feedback

    @property
    def counts_pending(self) -> bool:
        """Whether decisions narrow the radius before their feedback comes."""
        return False

    def pend(self, x: Array, arms: Any, chances: Any = None) -> None:
        """Count decisions that wait for feedback: m contexts (m, d) and arms (m,) of one city, or one
        decision in every city of a batch."""

    def release(self, x: Array, arms: Any, chances: Any = None) -> None:
        """Stop counting decisions that will never be learned; arguments as those of `pend`."""

    def summarise(self) -> Parts:
        """The parts of this city's summary, named as in `fields`: arrays that start with (..., K). They may
        be views of the learner's arrays; `numbers` returns a copy."""
        return {}

    def volumes(self, parts: Parts) -> Array | None:
        """How much each arm's part of a summary says, (..., K): the log-determinant of its information with
        that of the prior. None if the policy publishes every change."""
        if "information" in parts:
            information = parts["information"]
            return log_determinants(np.eye(information.shape[-1]) + information)
        return None

    def absorb(self, group: Parts, origins: tuple[str, ...] | None = None) -> None:
        """Use the newest summaries of the whole group, stacked before the arms: (..., J, K, ...).

        For a learner of one city its own summary comes first, then its peers'; `origins` names them,
        so that peers may join and leave. A batch is itself the group.
        """
        self.adopt(self.fold(self.prepare(group), origins))

    def prepare(self, parts: Parts) -> Parts:
        """What `fold` needs of the cities in `parts`, (..., J, K, ...), as far as it depends on each of them
        alone: it need not be computed again while a city's summary stays the same."""
        return parts

    def fold(self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False) -> Any:
        """The costly part of `absorb`, which does not change the learner, so that another thread may run it.
        `group` is what `prepare` returned; no array of the result is a view of it. `again` is for a restart:
        the weights stay as they were and do not take a step."""

    def adopt(self, fold: Any) -> None:
        """Use the result of `fold` from now on, together with all that the city has learned since."""

    def contributions(self, x: Array, arms: Ints) -> tuple[Array, Array]:
        """Each peer's share of the estimate and of the radius, (m, J) each, for m contexts (m, d) and the
        arms chosen (m,); J as in `attribution.origins`. The remainder is the city's own share."""
        estimate = np.zeros((len(x), len(self.attribution.origins)))
        radius = np.zeros_like(estimate)
        if self.attribution.origins:
            for arm, rows in by_arm(arms):
                estimate[rows], radius[rows] = self._contributions(x[rows], arm)
        return self.unit * estimate, self.unit * radius

    def check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        """Raise BadSummary unless an honest city could have sent `parts`: the squared length of its shared
        contexts is at most `max_square`, the size of its rewards at most `max_reward`."""
        counts = parts["count"]
        refuse_if(
            not (counts >= 0).all() or (counts != np.round(counts)).any(),
            "its counts are not all whole numbers of zero or more",
        )
        self._check(parts, version, max_square, max_reward / self.unit)

    def weights_of(self, origin: str) -> list[float]:
        """The peer's weight per arm at the last absorb; empty if it was not part of it."""
        if self.origins is None or origin not in self.origins:
            return []
        per_arm: list[float] = self.weights[..., self.origins.index(origin)].ravel().tolist()
        return per_arm

    def shares(self) -> dict[str, float]:
        """Each peer's share of the evidence that this city uses for the shared part, over all arms."""
        return {}

    def memory(self) -> dict[str, Array]:
        """State that depends on the history of absorbs, so that the current summaries do not determine it."""
        return {}

    def recall(self, origins: tuple[str, ...], memory: dict[str, Array]) -> None:
        """Restore a `memory` that was stored when the group was `origins`."""

    @property
    def mixes_peers(self) -> bool:
        """Whether absorbing changes this city's own summary."""
        return False

    def state(self) -> dict[str, Array]:
        """The arrays to store for a restart; the peers' summaries are not part of them."""
        raise NotImplementedError

    def restore(self, state: dict[str, Array]) -> None:
        """Restore a `state`; the peers count again from the next absorb."""
        raise NotImplementedError

    def numbers(self) -> Array:
        """The summary as packed numbers, (..., layout.size)."""
        return self.layout.pack(self.summarise())

    def absorb_summaries(self, city: str, summaries: Mapping[str, Summary], *, again: bool = False) -> None:
        """Absorb the newest summary of every peer of this one city. The result does not depend on the order
        of `summaries`."""
        group = self.group_of(city, summaries)
        self.adopt(self.fold(PeerRows().stack(self, group), group.origins, again=again))

    def group_of(self, city: str, summaries: Mapping[str, Summary]) -> Group:
        """This one city and its peers: what a fold in another thread reads. Its own summary is what it has
        published, so that all cities judge each other by the same letters; where it has published nothing,
        what it knows."""
        peers = tuple(summaries[origin] for origin in sorted(summaries) if origin != city)
        return Group(city, summaries[city].numbers if city in summaries else self.numbers(), peers)

    def _layout(self) -> Layout:
        return Layout(self.shape.arms, self.shape.shared, self.fields)

    def _score(self, x: Array) -> Score:
        raise NotImplementedError

    def _score_alone(self, x: Array) -> Score:
        raise NotImplementedError

    def _learn(self, at: Index, x: Array, reward: Array, decided: Decided) -> None:
        raise NotImplementedError

    def _contributions(self, x: Array, arm: int) -> tuple[Array, Array]:
        raise NotImplementedError

    def _check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        raise NotImplementedError

    def _per_city(self, values: Array) -> Array:
        """From (..., I, K, ...), receivers first, to the axes of this learner's arrays, (..., K, ...)."""
        return values[0] if self.shape.is_one_city else values


class Policy(Protocol):
    """The checked parameters of a learner; `learner` builds one."""

    name: ClassVar[str]

    @property
    def alpha(self) -> float | str: ...

    def learner(self, shape: Shape) -> Learner: ...


@dataclass(frozen=True, kw_only=True)
class RidgeParameters:
    """The parameters of all ridge policies: exploration (`alpha`) and regularisation (`ridge`)."""

    alpha: float = 0.7
    ridge: float = 1.0

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        positive("ridge", self.ridge)


@dataclass(frozen=True, kw_only=True)
class ExplorationParameters:
    """How an arm is chosen: `ucb` takes the highest upper bound; `thompson` draws an arm, see
    `choice.Sampling`."""

    exploration: Literal["ucb", "thompson"] = "ucb"
    thompson_scale: float = 0.15
    thompson_optimism: float = 0.5

    def __post_init__(self) -> None:
        one_of("exploration", self.exploration, ("ucb", "thompson"))
        positive("thompson_scale", self.thompson_scale)
        not_negative("thompson_optimism", self.thompson_optimism)

    @property
    def sampling(self) -> Sampling | None:
        if self.exploration == "ucb":
            return None
        return Sampling(self.thompson_optimism, self.thompson_scale)

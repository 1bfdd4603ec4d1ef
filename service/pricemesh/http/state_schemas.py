"""The body of `/state`: what a city believes, and what is in force."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from pricemesh.http.sales_schemas import LowestPrices
from pricemesh.http.schemas import RetractionNote


class ArmState(BaseModel):
    arm: int
    price: float
    count: int
    mean_reward: float | None
    units_sold: float | None = Field(description="Null in a city of values.")


class PeerState(BaseModel):
    origin: str | None = Field(description="Null until it has answered.")
    address: str | None = Field(description="Null for a city known through relayed letters only.")
    epoch: int | None
    version: int | None
    age_seconds: float | None = Field(description="Time since it last called, answered, or had a new letter.")
    status: Literal[
        "fresh",
        "relayed",
        "silent",
        "left",
        "quarantined",
        "dropped",
        "other terms",
        "not reached",
        "not called",
    ] = Field(
        description="other terms: it answers, but has other prices, shared features, policy or group, so its "
        "new letters do not count here until both agree. not called: by this replica, because another one "
        "is the publisher."
    )
    reason: str | None
    via: str | None = Field(description="The city that brought the letter it is quarantined for.")
    quarantine_ends: str | None = Field(description="What ends its quarantine.")
    weights: list[float] = Field(description="Its weight for each arm; with demand one for all.")
    share: float | None = Field(
        description="Its share of what this city knows about the shared features: of the information "
        "(netpool) or of the weights. The rest is the city's own."
    )
    bytes_in: int
    bytes_out: int


class FeatureState(BaseModel):
    name: str
    min: float
    max: float


class FeatureStates(BaseModel):
    shared: list[FeatureState]
    local: list[FeatureState]


class GossipState(BaseModel):
    group: str
    epoch: int | None = Field(description="Grows when this city is restored from an older state.")
    published_version: int | None = Field(description="Version of this city's newest letter.")
    unpublished_lessons: int = Field(
        description="Feedback learned that is not in the newest letter: it is not news yet (`gossip.news`)."
    )
    ticks: int
    left: bool
    key: str = Field(description="The public key that verifies this city's letters.")
    impostor: str | None = Field(
        description="Which city brought letters in this city's own name under another key, and why they were "
        "refused. Null if none did since the start."
    )


class Control(BaseModel):
    value: dict[str, Any]
    since: float


class ClockState(BaseModel):
    steady: bool = Field(description="False while no feedback window closes, because the time is in doubt.")
    reason: str | None = Field(description="Why it is not steady.")
    steps: int = Field(description="How often the clock has jumped since the start.")


class RewardState(BaseModel):
    """The section [reward]; keys of the other kind are absent."""

    kind: Literal["purchase", "value"]
    cost: float | str | None = Field(default=None, description="Of a unit: a number, or a feature's name.")
    max_units: int | None = None
    largest: float | None = None
    scale: float


class DisplayState(BaseModel):
    """The section [display]: in which money, things and days people read the figures."""

    currency: str | None = Field(description="ISO 4217; null for numbers without a unit.")
    unit: str = Field(description="What is sold.")
    time_zone: str


class ReplicaState(BaseModel):
    """Of this process, where several serve the city."""

    publisher: bool = Field(description="Whether it signs letters, calls peers and closes windows.")
    behind_seconds: float = Field(description="Since it knew every row that was committed.")


class Lessons(BaseModel):
    """What the learner has made of all feedback up to its version."""

    learned: int
    retracted: int
    unreadable: int = Field(description="Made under arms or features that are not those of today.")
    off_ladder: int = Field(description="Learned of a price that is no arm's.")
    relearning: bool = Field(description="True until the learner knows of every retraction.")


class ActiveRetraction(RetractionNote):
    feedback: int = Field(description="How many feedback it covers.")


class State(BaseModel):
    city: str
    policy: dict[str, Any]
    version: int
    decisions: int
    feedback: int
    arms: list[ArmState]
    lessons: Lessons
    retractions: list[ActiveRetraction] = Field(description="In force, the newest 20.")
    peers: list[PeerState]
    gossip: GossipState
    reward: RewardState
    display: DisplayState
    features: FeatureStates
    guardrails: dict[str, float | None]
    controls: dict[str, Control]
    clock: ClockState
    replica: ReplicaState | None = Field(description="null in a city of one process.")
    lowest_prices_30_days: LowestPrices = Field(
        description="The lowest price given today or in the 30 days before, by group of arms."
    )
    warnings: list[str] = Field(description="What an operator should change.")
    fingerprint: str

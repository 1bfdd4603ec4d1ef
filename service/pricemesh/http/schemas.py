"""The models of HTTP bodies, in and out: the contract that OpenAPI documents. Beliefs: `belief_schemas.py`.

Incoming numbers are finite, and unknown fields are refused. Field names are public: they never change.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pricemesh.city.addresses import CITY_NAME
from pricemesh.core.decision import IDENTIFIER

FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]
Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PriceRequest(RequestBody):
    shared: dict[str, FiniteNumber] = Field(description="Every declared shared feature by name.")
    local: dict[str, FiniteNumber] = Field(default={}, description="Every declared local feature by name.")
    decision_id: Identifier | None = Field(
        default=None, description="Your own id for the decision. The same id again gets the same answer."
    )
    subject: Subject | None = Field(
        default=None,
        description="Whose price it is (a customer, a route). `max_step` applies to each subject separately.",
    )


class PriceBatch(RequestBody):
    requests: list[PriceRequest] = Field(min_length=1)


class FeedbackRequest(RequestBody):
    """In a city of values."""

    decision_id: Identifier
    reward: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e12, le=1e12)]


class FeedbackBatch(RequestBody):
    items: list[FeedbackRequest] = Field(min_length=1)


class SaleRequest(RequestBody):
    """Feedback in a city of purchases."""

    decision_id: Identifier
    sold: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)] = Field(
        description="Units sold; 0 where the customer did not buy."
    )


class SaleBatch(RequestBody):
    items: list[SaleRequest] = Field(min_length=1)


class PinRequest(RequestBody):
    price: FiniteNumber = Field(description="One of the arms' prices.")
    reason: Annotated[str, Field(max_length=500)] = ""


class FreezeRequest(RequestBody):
    reason: Annotated[str, Field(max_length=500)] = ""


class TickRequest(RequestBody):
    phase: Literal["exchange", "absorb", "both"] = "both"


class TrustRequest(RequestBody):
    key: Annotated[
        str, Field(pattern=r"^[0-9a-f]{64}$", description="`gossip.key` in the /state of that city.")
    ]


class BeliefRequest(RequestBody):
    shared: dict[str, FiniteNumber] = Field(description="Every declared shared feature by name.")
    local: dict[str, FiniteNumber] = Field(default={}, description="Every declared local feature by name.")


class Regret(RequestBody):
    decisions: Annotated[int, Field(ge=0, le=2**53)]
    regret: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e12, le=1e12)]


class CityTruth(RequestBody):
    city: Annotated[str, Field(pattern=f"^{CITY_NAME}$")]
    together: Regret
    alone: Regret | None = Field(default=None, description="The same city and customers without peers.")


class TruthRequest(RequestBody):
    cities: list[CityTruth] = Field(min_length=1, max_length=64)


class TruthReceipt(BaseModel):
    cities: int


class TickResult(BaseModel):
    ticks: int
    absorbed: bool


class LeaveResult(BaseModel):
    told: int = Field(description="How many peers were told.")


class Limit(BaseModel):
    rule: Literal["floor", "ceiling", "max_step", "pin"]
    arms: list[int] = Field(description="The arms that it rules out.")


class Decision(BaseModel):
    decision_id: str
    city: str
    arm: int
    price: float
    estimate: float
    radius: float
    policy: str
    limited_by: list[Limit]
    propensity: float = Field(description="The probability with which the arm was chosen.")


class DecisionBatch(BaseModel):
    decisions: list[Decision]


class FeedbackReceipt(BaseModel):
    decision_id: str
    reward: float
    sold: float | None = Field(default=None, description="Units; absent in a city of values.")
    learned: bool = Field(
        description="False while learning is frozen: the feedback is stored and never learned."
    )
    version: int | None = Field(description="The learner's version after this feedback.")


class FeedbackOutcome(BaseModel):
    decision_id: str
    status: int = Field(description="The status that `POST /feedback` would answer: 200, 404, 409 or 410.")
    learned: bool = False
    version: int | None = None
    detail: str | None = None


class FeedbackOutcomes(BaseModel):
    outcomes: list[FeedbackOutcome]


class ArmScore(BaseModel):
    arm: int
    price: float
    estimate: float
    radius: float


class Contribution(BaseModel):
    origin: str
    estimate: float = Field(
        description="Its part of the chosen arm's estimate. On the scale `money` the parts add up to the "
        "estimate; on the scale `logit` to log(chance / (1 - chance))."
    )
    radius: float | None = Field(
        description="Its part of the chosen arm's radius. On the scale `money` the parts add up to the "
        "radius; on the scale `logit` to that of the logit, whose upper bound is the logit of "
        "chance * (1 + radius / estimate). The city's own part is null where rounding hides it: if the "
        "estimate is 0, or the chance or its bound are 0 or 1."
    )


class FeedbackRecord(BaseModel):
    reward: float
    sold: float | None = Field(description="Units; null in a city of values.")
    received_at: float
    by_default: bool
    version: int | None


class DecisionRecord(Decision):
    """The audit record: everything the city knew when it decided, and the feedback since."""

    number: int
    chance: float | None = Field(
        description="The chance of a sale at the chosen price, as predicted then; null where the policy "
        "predicts none."
    )
    made_at: float
    subject: str | None
    context: dict[str, dict[str, float]]
    arms: list[ArmScore]
    learner_version: int
    feedback: FeedbackRecord | None
    scale: Literal["money", "logit"] = Field(
        description="Of `contributions`: `logit` where the policy predicts the chance of a sale (demand), "
        "because the cities' parts add up there; else `money`, as the estimate."
    )
    contributions: list[Contribution]


class DecisionPage(BaseModel):
    decisions: list[DecisionRecord]
    next_before: int | None = Field(
        description="Pass it as `before` for the next page, also after a short one; null on the last."
    )


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


class ReplicaState(BaseModel):
    """Of this process, where several serve the city."""

    publisher: bool = Field(description="Whether it signs letters, calls peers and closes windows.")
    behind_seconds: float = Field(description="Since it knew every row that was committed.")


class State(BaseModel):
    city: str
    policy: dict[str, Any]
    version: int
    decisions: int
    feedback: int
    arms: list[ArmState]
    peers: list[PeerState]
    gossip: GossipState
    reward: RewardState
    features: FeatureStates
    guardrails: dict[str, float | None]
    controls: dict[str, Control]
    clock: ClockState
    replica: ReplicaState | None = Field(description="null in a city of one process.")
    warnings: list[str] = Field(description="What an operator should change.")
    fingerprint: str


class Version(BaseModel):
    name: str
    version: str
    city: str


class Health(BaseModel):
    status: str
    faults: list[str] = []


class FieldFault(BaseModel):
    field: str
    detail: str


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None
    errors: list[FieldFault] | None = None

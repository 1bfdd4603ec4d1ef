"""Every HTTP body, in and out. Numbers are finite; unknown fields are refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pricemesh.city.addresses import CITY_NAME

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
IDENTIFIER = r"[A-Za-z0-9._:@-]{1,128}"
Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]
SUBJECT = r"[^\x00-\x1f\x7f]{1,200}"
Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Incoming(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PriceRequest(Incoming):
    shared: dict[str, Number] = Field(description="Every declared shared feature by name.")
    local: dict[str, Number] = Field(default={}, description="Every declared local feature by name.")
    decision_id: Identifier | None = Field(
        default=None, description="Your own name for the decision: asked again, it gets the same answer."
    )
    subject: Subject | None = Field(
        default=None, description="Whose price it is (a customer, a route): `max_step` holds for each."
    )


class PriceBatch(Incoming):
    requests: list[PriceRequest] = Field(min_length=1)


class FeedbackRequest(Incoming):
    decision_id: Identifier
    reward: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e12, le=1e12)]


class FeedbackBatch(Incoming):
    items: list[FeedbackRequest] = Field(min_length=1)


class PinRequest(Incoming):
    price: Number = Field(description="One of the arms' prices.")
    reason: Annotated[str, Field(max_length=500)] = ""


class FreezeRequest(Incoming):
    reason: Annotated[str, Field(max_length=500)] = ""


class TickRequest(Incoming):
    phase: Literal["exchange", "absorb", "both"] = "both"


class TrustRequest(Incoming):
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="As `gossip.key` in its own /state.")]


class BeliefRequest(Incoming):
    shared: dict[str, Number] = Field(description="Every declared shared feature by name.")
    local: dict[str, Number] = Field(default={}, description="Every declared local feature by name.")


class Regret(Incoming):
    decisions: Annotated[int, Field(ge=0, le=2**53)]
    regret: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e12, le=1e12)]


class CityTruth(Incoming):
    city: Annotated[str, Field(pattern=f"^{CITY_NAME}$")]
    together: Regret
    alone: Regret | None = Field(default=None, description="The same city, same customers, without peers.")


class TruthRequest(Incoming):
    cities: list[CityTruth] = Field(min_length=1, max_length=64)


class TruthTaken(BaseModel):
    cities: int


class Ticked(BaseModel):
    ticks: int
    absorbed: bool


class Left(BaseModel):
    told: int = Field(description="How many peers have heard it.")


class Limit(BaseModel):
    rule: Literal["floor", "ceiling", "max_step", "pin"]
    arms: list[int] = Field(description="The arms it ruled out.")


class Decision(BaseModel):
    decision_id: str
    city: str
    arm: int
    price: float
    estimate: float
    radius: float
    policy: str
    limited_by: list[Limit]


class DecisionBatch(BaseModel):
    decisions: list[Decision]


class Learned(BaseModel):
    decision_id: str
    reward: float
    learned: bool = Field(description="False while learning is frozen: kept, and never learned.")
    version: int | None = Field(description="The learner's version with this feedback.")


class FeedbackOutcome(BaseModel):
    decision_id: str
    status: int = Field(description="What `POST /feedback` would have answered: 200, 404, 409 or 410.")
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
    estimate: float = Field(description="Its part of the chosen arm's estimate; all add up to it.")
    radius: float = Field(description="Its part of the chosen arm's radius; all add up to it.")


class FeedbackRecord(BaseModel):
    reward: float
    received_at: float
    by_default: bool
    version: int | None


class DecisionRecord(Decision):
    """The audit record: everything that was known when the price was given."""

    number: int
    made_at: float
    subject: str | None
    context: dict[str, dict[str, float]]
    arms: list[ArmScore]
    learner_version: int
    feedback: FeedbackRecord | None
    contributions: list[Contribution]


class DecisionPage(BaseModel):
    decisions: list[DecisionRecord]
    next_before: int | None = Field(description="Pass as `before` for the next page; null at the end.")


class Interval(BaseModel):
    estimate: float
    radius: float


class ArmBelief(ArmScore):
    own: Interval = Field(description="By this city's own data alone.")
    ruled_out_by: Literal["floor", "ceiling", "max_step", "pin"] | None


class Beliefs(BaseModel):
    """What a city would do for a context, and why. Nothing is decided and nothing kept."""

    policy: str
    version: int
    chosen: int = Field(description="The allowed arm with the highest estimate + radius.")
    chosen_alone: int = Field(description="The one it would choose by its own data alone.")
    separable: bool = Field(description="False where own parameters hold what peers told (netsgducb).")
    told_by: list[str] = Field(description="The peers that count.")
    arms: list[ArmBelief]


class ArmState(BaseModel):
    arm: int
    price: float
    count: int
    mean_reward: float | None


class PeerState(BaseModel):
    origin: str | None = Field(description="Null until it has answered.")
    address: str | None = Field(description="Null for a city that is known by relays only.")
    epoch: int | None
    version: int | None
    age_seconds: float | None = Field(description="Since it was last heard, or its newest letter came.")
    status: Literal["fresh", "relayed", "silent", "left", "quarantined", "dropped", "not reached"]
    reason: str | None
    via: str | None = Field(description="Who brought what it is quarantined for.")
    weights: list[float] = Field(description="How much it counts, by arm.")
    share: float | None = Field(
        description="Its share of all that this city goes by on the shared part: of the information "
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
    epoch: int | None = Field(description="Grows when this city was restored from an older state.")
    published_version: int | None = Field(description="What peers are told at most.")
    ticks: int
    left: bool
    key: str = Field(description="The key this city's letters are sealed with.")


class Control(BaseModel):
    value: dict[str, Any]
    since: float


class State(BaseModel):
    city: str
    policy: dict[str, Any]
    version: int
    decisions: int
    feedback: int
    arms: list[ArmState]
    peers: list[PeerState]
    gossip: GossipState
    features: FeatureStates
    guardrails: dict[str, float | None]
    controls: dict[str, Control]
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

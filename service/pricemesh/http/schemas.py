"""The models of HTTP bodies, in and out: the contract that OpenAPI documents. Others: `*_schemas.py`.

Incoming numbers are finite, and unknown fields are refused. Field names are public: they never change.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
    reason: Annotated[str, Field(max_length=500)] = ""


class BeliefRequest(RequestBody):
    shared: dict[str, FiniteNumber] = Field(description="Every declared shared feature by name.")
    local: dict[str, FiniteNumber] = Field(default={}, description="Every declared local feature by name.")


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
    arm: int | None = Field(description="Null only for an imported decision whose price was no arm's.")
    price: float
    estimate: float | None = Field(description="Null only for an imported decision.")
    radius: float | None
    policy: str = Field(description="`import` for an imported decision.")
    limited_by: list[Limit]
    propensity: float | None = Field(
        description="The probability with which the arm was chosen; null only if an import did not tell it."
    )


class DecisionBatch(BaseModel):
    decisions: list[Decision]


class FeedbackReceipt(BaseModel):
    decision_id: str
    reward: float
    sold: float | None = Field(default=None, description="Units; absent in a city of values.")
    learned: bool = Field(
        description="False while learning is frozen, when the feedback is stored and never learned; and of "
        "feedback that was retracted."
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
    estimate: float | None = Field(description="Null only for an imported decision.")
    radius: float | None


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


class RetractionNote(BaseModel):
    """Of the newest retraction in force that covers a feedback."""

    retraction: int
    at: float
    by: str
    reason: str


class FeedbackRecord(BaseModel):
    reward: float
    sold: float | None = Field(description="Units; null in a city of values.")
    received_at: float
    by_default: bool
    version: int | None
    key: str | None = Field(description="Id of the API key that sent it; null without keys.")
    retracted: RetractionNote | None = Field(description="Why it does not count; null where it does.")


class DecisionRecord(Decision):
    """The audit record: everything the city knew when it decided, and the feedback since."""

    number: int
    imported: bool = Field(description="An import brought it: nothing was estimated here.")
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

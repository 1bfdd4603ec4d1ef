"""The answer of `POST /beliefs`: every arm, and the demand curve of a policy that has one."""

from typing import Literal

from pydantic import BaseModel, Field

from pricemesh.http.schemas import ArmScore

CHANCE = "The chance of a sale; null where the policy predicts none."
LOW = "The chance where its logit is alpha_t standard deviations lower."
HIGH = "The chance where its logit is alpha_t standard deviations higher: prices are chosen by it."


class Interval(BaseModel):
    estimate: float
    radius: float
    chance: float | None = Field(description=CHANCE)
    chance_low: float | None = Field(description=LOW)
    chance_high: float | None = Field(description=HIGH)


class ArmBelief(ArmScore):
    chance: float | None = Field(description=CHANCE)
    chance_low: float | None = Field(description=LOW)
    chance_high: float | None = Field(description=HIGH)
    own: Interval = Field(description="From this city's own data alone.")
    propensity: float = Field(description="The probability with which the arm would be chosen.")
    ruled_out_by: Literal["floor", "ceiling", "max_step", "pin"] | None


class DemandAtPrice(BaseModel):
    chance: float
    chance_low: float = Field(description=LOW)
    chance_high: float = Field(description=HIGH)
    revenue: float = Field(description="The money expected: max_units * (price - cost) * chance.")
    revenue_low: float
    revenue_high: float = Field(description="At an arm's price its estimate + radius.")


class CurvePoint(DemandAtPrice):
    price: float
    own: DemandAtPrice = Field(description="From this city's own data alone.")


class Beliefs(BaseModel):
    """What a city would choose for a context, and why. Nothing is decided or stored."""

    policy: str
    version: int
    chosen: int = Field(
        description="The allowed arm with the highest estimate + radius; where arms are drawn, the likeliest."
    )
    chosen_alone: int = Field(description="The arm it would choose from its own data alone.")
    separable: bool = Field(description="False if the own parameters contain those of peers (netsgducb).")
    told_by: list[str] = Field(description="The peers whose letters count.")
    arms: list[ArmBelief]
    curve: list[CurvePoint] | None = Field(
        description="The demand curve at 41 prices over the ladder's range and at every arm's price, "
        "ascending; null where the policy has none. At an arm's price it has that arm's chance. Between two "
        "arms, what single prices have beyond the smooth curve is interpolated linearly; beyond the outer "
        "arms it stays as theirs."
    )

"""The bodies of the calls for the business: sales, acts of operators, alerts, what the mesh contributed."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from pricemesh.store.acts import ActKind
from pricemesh.store.calendar import Per

_NOT_OF_VALUES = "Null in a city of values."


class SalesFigures(BaseModel):
    """Of decisions made in one time. What is retracted counts only in `retracted`."""

    decisions: int = Field(description="Prices that were given.")
    answered: int = Field(description="Of these, how many got feedback from a caller.")
    defaults: int = Field(description="How many got the default when their window closed.")
    retracted: int = Field(description="How many had feedback that was retracted.")
    bought: int | None = Field(description=f"How many sold anything. {_NOT_OF_VALUES}")
    sold: float | None = Field(description=f"Units sold. {_NOT_OF_VALUES}")
    revenue: float | None = Field(description=f"Price times units sold. {_NOT_OF_VALUES}")
    reward: float = Field(description="Revenue less cost; in a city of values the sum of the rewards.")
    conversion: float | None = Field(
        description="Share of the decisions, without retracted ones, that sold anything. One that is not "
        f"answered yet has not: see `open`. Null without decisions. {_NOT_OF_VALUES}"
    )
    mean_reward: float | None = Field(description="Reward per decision, without retracted ones.")
    mean_price: float | None = Field(
        description="Mean of the prices that were given; null without decisions."
    )
    mean_price_paid: float | None = Field(description="Revenue per unit sold; null where nothing was sold.")
    lowest_price: float | None = Field(description="Lowest of the prices that were given.")


class SalesOfArm(SalesFigures):
    arm: int | None = Field(description="Its place in the present ladder; null where that has no such price.")
    price: float | None = Field(
        description="Null for all imported decisions whose price was no arm's, together."
    )


class SalesBucket(SalesFigures):
    start: int = Field(description="Of the hour, day or week in which the decisions were made; Unix seconds.")
    end: int = Field(description="Where the next one begins; a day may have 23 or 25 hours.")
    open: bool = Field(
        description="Whether decisions of it may still get feedback: its figures may still grow."
    )
    arms: list[SalesOfArm] | None = Field(default=None, description="By arm, with `arms=true`; else absent.")


class Sales(BaseModel):
    city: str
    currency: str | None = Field(
        description="`display.currency`: ISO 4217, or null for numbers without a unit."
    )
    unit: str = Field(description="`display.unit`: what is sold.")
    time_zone: str = Field(
        description="`display.time_zone`: hours, days and weeks (from Monday) are its own."
    )
    per: Per
    since: int = Field(description="Start of the first bucket.")
    until: int = Field(description="End of the last bucket.")
    complete: bool = Field(
        description="False while the rows of an older database, or of a large import or retraction, are "
        "still being counted, which takes minutes at most."
    )
    total: SalesFigures = Field(description="Of all buckets together.")
    buckets: list[SalesBucket] = Field(description="All of the time, oldest first; also empty ones.")


class ActRecord(BaseModel):
    at: float = Field(description="Unix seconds.")
    kind: ActKind
    by: str = Field(description="Id of an API key, or `operator` without keys and on the command line.")
    reason: str = Field(description="Empty where none was given.")
    detail: dict[str, Any] = Field(description="What the act was about: a price, a peer, numbers of rows.")


class Acts(BaseModel):
    acts: list[ActRecord] = Field(description="Newest first. The newest 10,000 of a city are stored.")
    more: bool = Field(description="Whether the time has more than `limit` of them.")


class Alert(BaseModel):
    kind: Literal[
        "database",
        "clock",
        "peer quarantined",
        "peer silent",
        "peer with other terms",
        "impostor",
        "guardrail always binds",
        "arm never tried",
        "unusual reward",
        "unusual conversion",
        "feedback stopped",
        "reward scale",
        "sales incomplete",
    ]
    severity: Literal["critical", "warning", "info"]
    about: str | None = Field(description="The peer, rule or price that it is about.")
    since: float | None = Field(description="Unix seconds, where it is known.")
    text: str = Field(description="What is the matter.")
    what_to_do: str


class Alerts(BaseModel):
    at: float
    alerts: list[Alert] = Field(description="Those of now, critical ones first; empty when all is well.")


class MeshValue(BaseModel):
    """An estimate of this city's own learner, not a measurement: for the contexts of the newest decisions,
    what it expects of the prices that it would choose now, against those that it would choose by its own data
    alone; both by the estimates with the peers."""

    decisions: int = Field(
        description="How many contexts were looked at: the newest decisions, 1000 at most."
    )
    peers: list[str] = Field(description="Whose letters count.")
    separable: bool = Field(description="False where the policy cannot tell own data from that of peers.")
    together: float | None = Field(
        description="Expected reward per decision with the peers; null without decisions."
    )
    alone: float | None = Field(description="The same, with the prices chosen by own data alone.")
    gain: float | None = Field(description="`together` less `alone`, per decision: by its own estimates.")
    gain_share: float | None = Field(
        description="`gain` as a share of `alone`; null where that is not positive."
    )
    other_choices: float | None = Field(
        description="Share of the contexts where the likeliest price differs."
    )
    currency: str | None


class GroupPrice(BaseModel):
    group: str = Field(description="`all`: every arm of a city is a price of the same thing.")
    price: float | None = Field(description="Null without decisions in that time.")


class LowestPrices(BaseModel):
    since: int = Field(description="Start of the day 30 days before today, in `display.time_zone`.")
    complete: bool = Field(description="As of sales.")
    groups: list[GroupPrice]

"""The bodies of retractions: what an operator takes back, and what came of it."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pricemesh.http.schemas import FiniteNumber, Identifier, RequestBody

ABSENT: Any = None  # of a field that may not be null where it is present
ReasonText = Annotated[str, Field(min_length=1, max_length=500, description="Stored with who gave it.")]


def _require_one(schema: dict[str, Any]) -> None:
    ways = [{"required": [name]} for name in ("decisions", "import", "key")]
    time = {"anyOf": [{"required": ["since"]}, {"required": ["until"]}]}
    schema["oneOf"] = [*ways, time]
    for field in schema["properties"].values():
        field.pop("default", None)


class RetractRequest(RequestBody):
    """Exactly one of `decisions`, `import`, `key` and a time: `since`, `until`, or both."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_require_one)

    decisions: list[Identifier] = Field(
        default=ABSENT, min_length=1, description="The feedback of these decisions."
    )
    import_name: str = Field(
        default=ABSENT,
        alias="import",
        min_length=1,
        max_length=200,
        description="All feedback that this import brought.",
    )
    since: FiniteNumber = Field(default=ABSENT, description="Received at this time or later; Unix seconds.")
    until: FiniteNumber = Field(default=ABSENT, description="Received before this time; Unix seconds.")
    key: str = Field(
        default=ABSENT, min_length=1, max_length=100, description="Sent with the API key of this id."
    )
    reason: ReasonText
    dry_run: bool = Field(default=False, description="Only count what is selected.")


class LiftRequest(RequestBody):
    reason: ReasonText


class RetractionRecord(BaseModel):
    id: int
    at: float
    by: str = Field(description="Id of an API key, or `operator` in a city without keys.")
    reason: str
    selection: dict[str, Any] = Field(description="As in the request; of `decisions` the first 20.")
    feedback: int = Field(description="How many feedback it covers.")
    lifted_at: float | None
    lifted_by: str | None
    lift_reason: str | None


class RetractionResult(BaseModel):
    retraction: RetractionRecord | None = Field(description="Null of a dry run.")
    selected: int = Field(description="Feedback that is selected.")
    already_retracted: int = Field(description="Of these, how many did not count before.")
    without_feedback: int = Field(description="Decisions in the request that have no feedback.")
    relearned: bool = Field(
        description="Whether the learner has learned again by now. Else it is under way, and `lessons` in "
        "/state says when it is done. False of a dry run."
    )


class LiftResult(BaseModel):
    retraction: RetractionRecord
    restored: int = Field(description="Feedback that counts again; 0 where it was lifted before.")
    still_retracted: int = Field(description="Feedback that another retraction covers.")
    pruned: int = Field(description="Feedback that was deleted since.")
    relearned: bool = Field(description="As of a retraction.")


class RetractionPage(BaseModel):
    retractions: list[RetractionRecord]
    next_before: int | None = Field(description="Pass it as `before` for the next page; null on the last.")

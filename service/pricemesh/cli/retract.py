"""`pricemesh retract`: take feedback of a running city back, and lift retractions."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.http.retraction_schemas import LiftResult, RetractionResult

EXAMPLES = """
**Examples**

`pricemesh retract http://127.0.0.1:8001 --decision order-17 --reason "a refund"`

`pricemesh retract http://127.0.0.1:8001 --import till-2024 --reason "wrong currency" --dry-run`

`pricemesh retract http://127.0.0.1:8001 --since 2026-05-01T08:00Z --until 2026-05-01T12:00Z --reason "a bug"`

`pricemesh retract http://127.0.0.1:8001 --key 0a1b2c3d4e5f --reason "a stolen key"`

`pricemesh retract http://127.0.0.1:8001 --lift 3 --reason "it was right"`
"""


def retract(
    url: Annotated[str, typer.Argument(help="The city's address, such as http://127.0.0.1:8001.")],
    reason: Annotated[str, typer.Option(help="Why; stored with who retracts.")],
    decision: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Feedback of this decision; may be repeated.")
    ] = None,
    import_name: Annotated[
        str | None, typer.Option("--import", metavar="NAME", help="All feedback of this import.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Feedback received then or later: Unix or ISO 8601.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Feedback received before.")] = None,
    sent_with: Annotated[
        str | None, typer.Option("--key", metavar="ID", help="Feedback sent with the API key of this id.")
    ] = None,
    lift: Annotated[int | None, typer.Option(metavar="N", help="Lift this retraction instead.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what is selected.")] = False,
    admin_key: Annotated[
        str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key with the scope admin.")
    ] = None,
) -> None:
    """Take feedback back. It stays in the audit, and stops counting in this city and at its peers."""
    from pricemesh.client import City

    selections = [decision or None, import_name, since or until, sent_with, lift]
    if sum(selection is not None for selection in selections) != 1:
        raise InvalidParameter("give exactly one of --decision, --import, --since/--until, --key and --lift")
    if lift is not None and dry_run:
        raise InvalidParameter("--dry-run counts what a retraction selects; it does not go with --lift")
    with City(url, key=admin_key) as city:
        if lift is not None:
            print(_lifted(city.lift_retraction(lift, reason)))
            return
        result = city.retract(
            reason,
            decisions=decision or None,
            import_name=import_name,
            since=_seconds("--since", since),
            until=_seconds("--until", until),
            key=sent_with,
            dry_run=dry_run,
        )
    print(_retracted(result))


def _seconds(option: str, text: str | None) -> float | None:
    """Unix seconds of a time; one without a zone is local."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InvalidParameter(
            f"{option} is a time such as 2026-05-01T08:00Z, or Unix seconds, not {text!r}"
        ) from None


def _retracted(result: "RetractionResult") -> str:
    counts = f"{result.selected} feedback selected, {result.already_retracted} of them retracted already"
    if result.without_feedback:
        counts += f"; {result.without_feedback} decisions without feedback"
    if result.retraction is None:
        return f"{counts}; nothing was changed"
    return f"retraction {result.retraction.id}: {counts}; {_learner(result.relearned)}"


def _lifted(result: "LiftResult") -> str:
    text = f"retraction {result.retraction.id} is lifted: {result.restored} feedback count again"
    if result.still_retracted:
        text += f"; {result.still_retracted} are retracted by others"
    if result.pruned:
        text += f"; {result.pruned} were pruned and do not come back"
    return f"{text}; {_learner(result.relearned)}"


def _learner(is_relearned: bool) -> str:
    if is_relearned:
        return "the learner has learned again"
    return "the learner is learning again: lessons.relearning in /state says when it is done"

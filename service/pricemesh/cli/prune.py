"""`pricemesh prune`: old rows leave a city's database."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.cli.terminal import notes, progress_bar
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.store.pruning import PrunePlan

SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}

EXAMPLES = """
**Examples**

`pricemesh prune --older-than 400d --config lisbon.toml --dry-run` — what would leave; the city may serve

`pricemesh prune --older-than 400d --config lisbon.toml` — stop the city first; asks before it deletes

`pricemesh prune --older-than 400d --config lisbon.toml --yes --vacuum` — from a timer, and a smaller file
"""


def prune(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Rows that are older leave: 400d, 36h or 52w.")
    ],
    config: ConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would leave.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Then make the file smaller (SQLite); needs as much free disk.")
    ] = False,
) -> None:
    """Delete old decisions and feedback of a stopped city. What they taught stays, to the ninth digit.

    One transaction: a prune that is ended at any moment has happened, or has not."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.city.pruning import Pruning
    from pricemesh.runtime import Runtime

    pruning = Pruning(load_settings(config), Runtime(), age_seconds(older_than))
    try:
        if not dry_run:
            pruning.database.claim()
        plan = pruning.plan()
        _print_plan(plan, pruning.age.made_before)
        if dry_run:
            return
        if plan.rows:
            if not yes:
                typer.confirm("Delete these rows?", abort=True, err=True)
            with progress_bar("lessons") as bar:
                task = bar.add_task("learning, then checking", total=None)
                plan = pruning.carry_out(lambda done, total: bar.update(task, completed=done, total=total))
            print(f"deleted {plan.decisions} decisions and {plan.learned + plan.unlearned} feedback")
        if vacuum:
            pruning.database.vacuum()
    finally:
        pruning.close()


def age_seconds(text: str) -> float:
    """
    >>> age_seconds("1.5d")
    129600.0
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text)
    if parts is None or float(parts[1]) <= 0:
        raise InvalidParameter(f"--older-than is a number with h, d or w, such as 400d, not {text!r}")
    return float(parts[1]) * SECONDS[parts[2]]


def _print_plan(plan: "PrunePlan", made_before: float) -> None:
    print(f"decisions made before {_time(made_before)}:")
    if plan.old_left:
        print(
            f"  {plan.old_left} stay: the newest row, those whose window the city has not closed yet, and "
            "those whose feedback was learned after that of a younger decision"
        )
    if not plan.rows:
        print("  none leaves")
        return
    print(f"  {plan.decisions} leave, made from {_time(plan.first_made_at)} to {_time(plan.last_made_at)}")
    print(f"  {plan.unanswered} of them never got feedback")
    print(f"  {plan.learned} feedback leaves, {plan.retracted} of it retracted; what it taught stays")
    print(f"  {plan.unlearned} feedback leaves that came while learning was frozen")
    notes.print(
        "This cannot be undone. Rows that have left can no longer be audited, exported, retracted, or read "
        "in other arms or features; the policy's parameters by which they were learned can no longer change. "
        "Subjects without a later price start anew with guardrails.max_step.",
        highlight=False,
        soft_wrap=True,
    )


def _time(seconds: float | None) -> str:
    return "never" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"

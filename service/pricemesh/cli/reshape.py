"""`pricemesh reshape`: another ladder or other features for a city that has learned."""

from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.cli.terminal import notes, progress_bar
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.city.reshaping import Plan

EXAMPLES = """
**Examples**

`pricemesh reshape --config lisbon.toml --dry-run` — what would change, and what could not be read any more

`pricemesh reshape --config lisbon.toml` — after prices were added to or removed from the file

`pricemesh reshape --config lisbon.toml --fill weekend=0 --rename footfall=visitors` — two new names
"""

Fills = Annotated[
    list[str] | None,
    typer.Option(
        "--fill", metavar="FEATURE=VALUE", help="What older rows are taken to have of a new feature."
    ),
]
Renames = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="NEW=OLD", help="A feature that has another name now."),
]


def reshape(
    config: ConfigFile = None,
    fill: Fills = None,
    rename: Renames = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    discard_base: Annotated[
        bool,
        typer.Option("--discard-base", help="Go on without what pruned rows taught; it cannot be read."),
    ] = False,
) -> None:
    """Read what a city has learned in the terms of a changed configuration: other prices, other features.

    Stop the city first, all of its replicas; afterwards start it with the same configuration. Decisions stay
    as they are, and their audit records show the ladder of their time. What cannot be read in the new terms
    stays in the rows, and counts again when another reshape makes it readable."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.city.reshaping import carry_out, make_plan
    from pricemesh.runtime import Runtime
    from pricemesh.store.maintenance import owning

    settings = load_settings(config)
    renames, fills = _pairs("--rename", rename), _fills(fill)
    runtime, database = Runtime(), settings.database
    with owning(database.url, settings.city, runtime, database.lock_wait_seconds) as connection:
        with progress_bar("lessons") as progress:
            task = progress.add_task("learning in the new terms", total=None)
            plan = make_plan(
                connection,
                settings,
                renames,
                fills,
                lambda done, total: progress.update(task, completed=done, total=total),
            )
        _describe(plan)
        if not plan.changes:
            return
        if dry_run:
            print("nothing was changed (--dry-run)")
            return
        if plan.base_lessons and not discard_base:
            raise InvalidParameter("--discard-base goes on without what pruned rows taught")
        carry_out(connection, settings, plan, runtime.clock())
    print("done: start the city with this configuration")


def _describe(plan: "Plan") -> None:
    if not plan.changes:
        print("the database is made for this configuration already: nothing to do")
        return
    for change in plan.changes:
        print(f"- {change}")
    counts = plan.live.counts
    by_curve = f", {counts.off_ladder} of them by the curve between prices" if counts.off_ladder else ""
    print(f"{plan.lessons_learned} of {plan.lessons} lessons are learned in the new terms{by_curve}")
    if counts.retracted:
        print(f"{counts.retracted} lessons are retracted")
    if counts.unreadable:
        print(f"{counts.unreadable} lessons cannot be read in them, and stay in the rows")
    if plan.base_lessons:
        print(f"{plan.base_lessons} lessons of pruned rows cannot be read in other terms, and are lost")
    for price, count in plan.lost_prices.items():
        notes.print(f"  {count} lessons at the price {price:g}, which is not on the ladder", highlight=False)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise InvalidParameter(f"{option} is written {option} NAME=VALUE, not {text!r}")
        pairs[name] = value
    return pairs


def _fills(texts: list[str] | None) -> dict[str, float]:
    fills = {}
    for name, value in _pairs("--fill", texts).items():
        try:
            fills[name] = float(value)
        except ValueError:
            raise InvalidParameter(f"--fill {name}={value}: {value!r} is not a number") from None
    return fills

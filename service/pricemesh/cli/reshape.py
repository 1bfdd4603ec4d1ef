"""`pricemesh reshape`: another ladder or other features for a city that has learned."""

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.cli.terminal import notes, progress_bar
from pricemesh.errors import InvalidParameter, ReplicasServe

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from pricemesh.city.reshaping import Plan
    from pricemesh.city.settings import Settings
    from pricemesh.store.maintenance import OwnedDatabase

EXAMPLES = """
**Examples**

`pricemesh reshape --config lisbon.toml --dry-run` — what would change, and what could not be read any more

`pricemesh reshape --config lisbon.toml` — after prices were added to or removed from the file

`pricemesh reshape --config lisbon.toml --fill weekend=0 --rename footfall=visitors` — two new names

`pricemesh reshape --config lisbon.toml --reload-replicas` — beside the replicas that serve
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
    reload_replicas: Annotated[
        bool,
        typer.Option(
            "--reload-replicas",
            help="Beside replicas on Postgres: they end when it is done, and have to be started again.",
        ),
    ] = False,
) -> None:
    """Read what a city has learned in the terms of a changed configuration: other prices, other features.

    Stop the city first, all of its replicas; afterwards start it with the same configuration. With --dry-run
    it may serve; with --reload-replicas, its replicas may. Decisions stay as they are, and their audit
    records show the ladder of their time. What cannot be read in the new terms stays in the rows, and counts
    again when another reshape makes it readable."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.city.reshaping import carry_out
    from pricemesh.runtime import Runtime
    from pricemesh.store.maintenance import OwnedDatabase
    from pricemesh.store.outside import sqlite_path
    from pricemesh.store.takeover import TakenDatabase

    settings = load_settings(config)
    renames, fills = _pairs("--rename", rename), _fills(fill)
    runtime, storage = Runtime(), settings.database
    sqlite_path(storage.url)
    kind = TakenDatabase if reload_replicas else OwnedDatabase
    database = kind(storage.url, settings.city, runtime, storage.lock_wait_seconds)
    with closing(database), ExitStack() as stack:
        if not dry_run and not reload_replicas:
            connection = _own(stack, database)
        plan = _plan(database, settings, renames, fills)
        _describe(plan)
        if not plan.changes:
            return
        if dry_run:
            print("nothing was changed (--dry-run)")
            return
        if plan.base_lessons and not discard_base:
            raise InvalidParameter("--discard-base goes on without what pruned rows taught")
        if reload_replicas:  # only now: they have served while the rows were learned
            connection = _own(stack, database)
        carry_out(connection, settings, plan, runtime.clock())
    print("done: start the city with this configuration")
    if reload_replicas:
        print("replicas that were serving end now; each has to be started again with this configuration")


def _own(stack: ExitStack, database: "OwnedDatabase") -> "Connection":
    try:
        return stack.enter_context(database.alone())
    except ReplicasServe as fault:
        raise ReplicasServe(
            f"{fault}. Or give --reload-replicas: they serve until the new terms are in force, then end, and "
            "whatever starts them again must give them this configuration"
        ) from None


def _plan(
    database: "OwnedDatabase", settings: "Settings", renames: dict[str, str], fills: dict[str, float]
) -> "Plan":
    from pricemesh.city.reshaping import make_plan

    with database.look() as connection, progress_bar("lessons") as progress:
        database.check_city(connection)
        task = progress.add_task("learning in the new terms", total=None)
        return make_plan(
            connection,
            settings,
            renames,
            fills,
            lambda done, total: progress.update(task, completed=done, total=total),
        )


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

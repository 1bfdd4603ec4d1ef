"""`pricemesh import`: a file of history into a city."""

from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.cli.history import ColumnMap, Delimiter, Encoding
from pricemesh.cli.terminal import check_writable, notes, progress_bar
from pricemesh.errors import AlreadyImported, InvalidParameter

if TYPE_CHECKING:
    from pricemesh.city.settings import Settings

EXAMPLES = """
**Examples**

`pricemesh import sales.csv --config lisbon.toml --dry-run` — what the file holds, and what is wrong with it

`pricemesh import sales.csv --config lisbon.toml --bad-rows bad.csv --skip-bad-rows`

`pricemesh import swissmetro.dat --config city.toml --map SM_CO=price --map CHOICE:2=sold`

`pricemesh import --abandon --config lisbon.toml` — forget one that was interrupted
"""


def import_(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="CSV or Parquet, one row a decision.")
    ] = None,
    config: ConfigFile = None,
    map_: ColumnMap = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="[default: of the file]")] = None,
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Of times without one, such as Europe/Lisbon.")
    ] = "UTC",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and change nothing.")] = False,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Import the others if some rows cannot be.")
    ] = False,
    bad_rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where rows with a fault go, with the reason.")
    ] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Forget an import that was interrupted.")
    ] = False,
) -> None:
    """Bring history into a city that is stopped: it learns the file's rows as if it had decided them."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.history.importing import Import, digest_of, examine, learn
    from pricemesh.history.mapping import ColumnMapping
    from pricemesh.history.reading import HistoryReader
    from pricemesh.history.tables import open_table
    from pricemesh.runtime import Runtime

    settings, runtime = load_settings(config), Runtime()
    if abandon:
        _abandon(settings)
        return
    if file is None:
        raise InvalidParameter("name the file to import")
    check_writable(bad_rows)
    zone, mapping = _zone(time_zone), ColumnMapping.parsed(map_ or [])

    def reader() -> HistoryReader:
        table = open_table(file, mapping, delimiter=delimiter, encoding=encoding)
        return HistoryReader(settings, table, zone=zone, latest=runtime.clock())

    with progress_bar("rows") as progress:
        task = progress.add_task("check", total=None)
        summary = examine(reader(), bad_rows, lambda rows: progress.update(task, completed=rows))
    _print(*summary.lines())
    if bad_rows is not None and summary.faulty:
        _print(f"rows with a fault are in {bad_rows}: mend them and import that file, too")
    if dry_run:
        return
    if summary.faulty and not skip_bad_rows:
        raise InvalidParameter(
            f"{summary.faulty:,} rows cannot be imported, so nothing was: mend the file, or give "
            "--skip-bad-rows"
        )
    if not summary.answered:
        raise InvalidParameter("no row of the file has feedback that counts, so there is nothing to import")
    work = Import(settings, file, name or file.name, digest_of(file), runtime)
    with progress_bar("rows") as progress:
        task = progress.add_task("import", total=summary.rows)
        try:
            result = work.run(reader(), lambda rows: progress.update(task, completed=rows))
        except AlreadyImported as fault:
            _print(f"{fault}: nothing to do")
            return
    _print(
        f"imported {result.counted:,} rows; left out {result.known:,} that are decisions of this city "
        f"already and {result.unanswered:,} without feedback that counts",
        "learning them, so that the city starts at once; if you interrupt this, it learns when it starts",
    )
    _print(f"done: the learner is at version {learn(settings, runtime):,}")


def _abandon(settings: "Settings") -> None:
    from pricemesh.store.importing import abandon
    from pricemesh.store.maintenance import owning

    storage = settings.database
    with owning(storage.url, settings.city, lock_wait_seconds=storage.lock_wait_seconds) as connection:
        name = abandon(connection)
    _print("no import was interrupted" if name is None else f"the import {name!r} is forgotten")


def _zone(name: str) -> tzinfo:
    from pricemesh.store.calendar import zone_of

    try:
        return zone_of(name)
    except ValueError as fault:
        raise InvalidParameter(f"--time-zone {fault}") from None


def _print(*lines: str) -> None:
    notes.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)

"""`pricemesh init`, `export` and `backup`: a city's data in files."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.cli.terminal import check_writable, notes, output, progress_bar
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.history.export import Export
    from pricemesh.history.writing import Format

EXPORT_EXAMPLES = """
**Examples**

`pricemesh export --config lisbon.toml --out lisbon.parquet`

`pricemesh export --config lisbon.toml --out - --since 2026-03-01 --columns time,price,sold | gzip > 3.gz`

`pricemesh export --config lisbon.toml --out all.csv --columns default,estimates,radii` — of every arm
"""

INIT_EXAMPLES = """
**Examples**

`pricemesh init sales.csv`

`pricemesh init swissmetro.dat --map SM_CO=price --map CHOICE:2=sold` — a sale wherever CHOICE is 2

`pricemesh init sales.parquet --map fare=price --local tourists --out lisbon.toml`
"""

BACKUP_EXAMPLES = """
**Examples**

`pricemesh backup backups/lisbon-2026-03-01.db --config lisbon.toml`
"""

ColumnMap = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="COLUMN=NAME",
        help="Take a column under another name, such as price; again for more. COLUMN:VALUE=NAME is 1 where "
        "the column has the value, 0 elsewhere.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="Between the fields of CSV. [default: by its first lines]"),
]
Encoding = Annotated[str | None, typer.Option(metavar="NAME", help="Of CSV. [default: utf-8]")]

Write = Callable[[bytes], object]


def export(
    out: Annotated[str, typer.Option(metavar="FILE", help="Where to write; - is standard output, for CSV.")],
    config: ConfigFile = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="csv or parquet. [default: by the name of FILE]"),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on: ISO 8601 or Unix seconds.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")] = None,
    arm: Annotated[int | None, typer.Option(metavar="N", help="Decisions for this arm only.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With commas: names of columns, or default, features, estimates, radii, all.",
        ),
    ] = None,
) -> None:
    """Write a city's decisions to a file, one row each, beside the running city or while it is stopped."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.history.export import Export, Selection
    from pricemesh.store.backend import TimeLimits
    from pricemesh.store.outside import reader_beside

    selection = Selection(
        _format(format_, out),
        [name.strip() for name in columns.split(",")] if columns else [],
        arm,
        _time("--since", since),
        _time("--until", until),
    )
    settings = load_settings(config)
    check_writable(out)
    database = settings.database
    limits = TimeLimits(database.timeout_seconds, database.read_timeout_seconds)
    with reader_beside(database.url, settings.city, settings.schema_description, limits) as reader:
        work = Export(settings, reader, selection)
        with _target(out) as write:
            size = _run(work, write)
    where = "" if out == "-" else f" to {out}"
    notes.print(
        f"wrote {work.progress.rows:,} decisions{where} ({size:,} bytes)",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _time(option: str, text: str | None) -> float | None:
    from pricemesh.history.times import option_time

    try:
        return None if text is None else option_time(text)
    except ValueError as fault:
        raise InvalidParameter(f"{option} {fault}") from None


def _format(name: str | None, out: str) -> "Format":
    from pricemesh.history.writing import Format

    chosen = name or Path(out).suffix.lower().removeprefix(".") or ("csv" if out == "-" else "")
    try:
        format_ = Format(chosen)
    except ValueError:
        fault = (
            f"--format is csv or parquet, not {name!r}" if name else f"give --format csv or parquet for {out}"
        )
        raise InvalidParameter(fault) from None
    if out == "-" and format_ is not Format.CSV:
        raise InvalidParameter("--out - is for CSV: give a file to write Parquet to")
    return format_


def _run(work: "Export", write: Write) -> int:
    """Returns how many bytes were written."""
    size = 0
    work.begin()
    with progress_bar("decisions") as progress:
        task = progress.add_task("export", total=work.progress.total)
        while (piece := work.next()) is not None:
            write(piece)
            size += len(piece)
            progress.update(task, completed=work.progress.done)
    return size


@contextmanager
def _target(out: str) -> Iterator[Write]:
    """A file that has its name only once it is complete; or standard output."""
    if out == "-":
        try:
            yield sys.stdout.buffer.write
            sys.stdout.flush()
        except BrokenPipeError:  # the reader wanted no more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        return
    target = Path(out).resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as stream:
            yield stream.write
        os.replace(part, target)
    except OSError as fault:
        raise InvalidParameter(f"cannot write {out}: {fault.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet, one row a sale or an offer.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The file to write; - prints it.")] = "city.toml",
    map_: ColumnMap = None,
    local: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A feature of this city alone; again for more.")
    ] = None,
    city: Annotated[str | None, typer.Option(metavar="NAME", help="[default: after the file]")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
) -> None:
    """Look at a file of sales and write a configuration for a city that prices them."""
    from pricemesh.history import columns
    from pricemesh.history.mapping import ColumnMapping
    from pricemesh.history.proposal import city_name, propose
    from pricemesh.history.proposal_text import as_toml, next_steps
    from pricemesh.history.survey import survey
    from pricemesh.history.tables import open_table

    check_writable(out)
    if out != "-" and Path(out).exists():
        raise InvalidParameter(f"{out} exists: name another file with --out")
    table = open_table(file, ColumnMapping.parsed(map_ or []), delimiter=delimiter, encoding=encoding)
    found = survey(table, columns.PRICE)
    proposal = propose(found, city or city_name(file), local or [])
    text = as_toml(proposal, found, file)
    with output(out) as stream:
        stream.write(text)
    if out == "-":
        return
    options = [word for option in map_ or [] for word in ("--map", option)]
    options += [] if delimiter is None else ["--delimiter", delimiter]
    options += [] if encoding is None else ["--encoding", encoding]
    steps = next_steps(proposal, out, file, options)
    lines = [f"wrote {out}: read it, then", *(f"  {step}" for step in steps)]
    notes.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; it must not exist yet.")],
    config: ConfigFile = None,
) -> None:
    """Copy a city's SQLite database, beside the running city or while it is stopped, and check the copy."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.store.backup import back_up

    settings = load_settings(config)
    check_writable(file)
    with progress_bar("pages") as progress:
        task = progress.add_task("backup", total=None)
        result = back_up(
            settings.database.url,
            settings.city,
            file,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    source = result.source
    lines = [
        f"wrote {file}: {result.decisions:,} decisions, {result.feedback:,} feedback, "
        f"{result.size_bytes:,} bytes; its integrity is checked",
        "It holds the city's private key: protect it like a password. To restore it, stop the city, then",
        f"  rm -f {source}-wal {source}-shm && cp {file} {source}",
        "and start the city again.",
    ]
    notes.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)

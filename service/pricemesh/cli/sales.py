"""`pricemesh sales`: what a city sold per hour, day or week, as `GET /sales` answers it."""

import csv
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.cli.terminal import notes, results
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.store.calendar import Per

EXAMPLES = """
**Examples**

`pricemesh sales --config lisbon.toml` — the last 90 days

`pricemesh sales --config lisbon.toml --per hour --since 2026-03-01 --until 2026-03-02`

`pricemesh sales --config lisbon.toml --per week --csv > weeks.csv`
"""
COLUMNS = ("decisions", "sold", "revenue", "reward", "conversion", "mean_price", "mean_price_paid")
MONEY = ("revenue", "reward", "mean_price", "mean_price_paid")


def sales(
    config: ConfigFile = None,
    per: Annotated[str, typer.Option(metavar="TIME", help="hour, day or week.")] = "day",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on: ISO 8601 or Unix seconds.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Before this time. [default: now]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what GET /sales answers, by arm.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a row of CSV for each hour, day or week.")
    ] = False,
) -> None:
    """Print revenue and conversion by time, beside the running city or while it is stopped."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.city.sales import SalesQuery, sales_of
    from pricemesh.runtime import Runtime
    from pricemesh.store.backend import TimeLimits
    from pricemesh.store.outside import reader_beside

    if as_json and as_csv:
        raise InvalidParameter("give --json or --csv, not both")
    query = SalesQuery(_per(per), _time("--since", since), _time("--until", until), as_json)
    settings = load_settings(config)
    storage = settings.database
    limits = TimeLimits(storage.timeout_seconds, storage.read_timeout_seconds)
    with reader_beside(storage.url, settings.city, settings.schema_description, limits) as reader:
        report = sales_of(settings, reader, query, Runtime().clock())
    if as_json:
        print(json.dumps(report, indent=2))
    elif as_csv:
        _print_csv(report)
    else:
        _print_table(report)
    if not report["complete"]:
        notes.print("older rows are not counted yet: start the city, which counts them within minutes")


def _per(text: str) -> "Per":
    from pricemesh.store.calendar import Per

    try:
        return Per(text)
    except ValueError:
        raise InvalidParameter(f"--per is hour, day or week, not {text!r:.40}") from None


def _time(option: str, text: str | None) -> float | None:
    from pricemesh.history.times import option_time

    try:
        return None if text is None else option_time(text)
    except ValueError as fault:
        raise InvalidParameter(f"{option} {fault}") from None


def _start(report: dict[str, Any], seconds: int) -> str:
    """As a clock in the city shows it."""
    from pricemesh.store.calendar import zone_of

    return datetime.fromtimestamp(seconds, zone_of(report["time_zone"])).isoformat(timespec="minutes")


def _print_csv(report: dict[str, Any]) -> None:
    names = [name for name in report["total"] if name not in ("start", "end")]
    writer = csv.writer(sys.stdout)
    writer.writerow(["start", *names, "open"])
    for bucket in report["buckets"]:
        writer.writerow([_start(report, bucket["start"]), *(bucket[name] for name in names), bucket["open"]])


def _print_table(report: dict[str, Any]) -> None:
    from rich.table import Table

    currency = f" {report['currency']}" if report["currency"] else ""
    shown = [name for name in COLUMNS if report["total"][name] is not None or name == "reward"]
    table = Table(title=f"{report['city']} per {report['per']} ({report['time_zone']})")
    table.add_column("start")
    for name in shown:
        table.add_column(f"{name}{currency if name in MONEY else ''}", justify="right")
    for bucket in report["buckets"]:
        if bucket["decisions"]:
            mark = " (open)" if bucket["open"] else ""
            start = _start(report, bucket["start"]) + mark
            table.add_row(start, *(_cell(name, bucket[name]) for name in shown))
    table.add_section()
    table.add_row("total", *(_cell(name, report["total"][name]) for name in shown))
    results(stderr=False).print(table)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "conversion":
        return f"{value:.1%}"
    return f"{value:,.2f}" if name in MONEY else f"{value:,.12g}"

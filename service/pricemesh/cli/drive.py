"""`pricemesh drive`: sends synthetic demand to live cities."""

import asyncio
import csv
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pricemesh.cli.terminal import check_writable, notes, output, results, run_quickly
from pricemesh.cli.worlds import WorldName, WorldOption
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.lab.drive import Drive
    from pricemesh.lab.plan import Plan
    from pricemesh.lab.tally import Row, Tally

REPORT_SECONDS = 10  # between two lines of progress, where there is no terminal

EXAMPLES = """
**Examples**

`pricemesh drive http://127.0.0.1:8001` — one caller, 30 seconds, the paper's world

`pricemesh drive http://127.0.0.1:8001 http://127.0.0.1:8002 --rate 50 --seconds 60 --plot latency.png`

`pricemesh drive http://127.0.0.1:8001 --concurrency 32 --own-cost` — as fast as it goes

`pricemesh drive URL --rate 20 --delay 1000 --lose 0.2 --duplicate 0.1` — feedback as it really is
"""

Urls = Annotated[list[str], typer.Argument(metavar="URL...", help="The cities' addresses.")]
Seed = Annotated[int, typer.Option(help="Of the world: the same seed brings the same customers.")]
Rates = Annotated[
    str | None,
    typer.Option(metavar="R", help="Open loop: decisions a second at each city; a comma list: one for each."),
]
Concurrency = Annotated[
    int | None, typer.Option(metavar="C", help="Closed loop: callers at each city. [default: 1]")
]
Seconds = Annotated[float, typer.Option(help="How long; 0: until Ctrl-C.")]
Decisions = Annotated[int | None, typer.Option(metavar="N", help="Stop after so many at each city.")]
DelayOption = Annotated[
    str, typer.Option(help="Feedback comes late: 5s (exponential, mean), or up to 1000 (decisions).")
]
SendFeedback = Annotated[
    bool, typer.Option("--feedback/--no-feedback", help="Post rewards, or only ask for prices.")
]
Lose = Annotated[float, typer.Option(metavar="SHARE", help="Feedback that never comes.")]
Duplicate = Annotated[float, typer.Option(metavar="SHARE", help="Feedback that comes twice.")]
DriftAt = Annotated[
    int | None, typer.Option(metavar="N", help="After so many decisions the world is another.")
]
Heterogeneity = Annotated[float, typer.Option(help="How much the cities differ.")]
ApiKey = Annotated[
    str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key: price, feedback, read.")
]
OwnCost = Annotated[
    bool, typer.Option("--own-cost", help="Measure this client too: against an endpoint that does nothing.")
]
Truth = Annotated[
    bool, typer.Option("--truth", help="Report regret to the cities, for their page (lab.demo).")
]
CsvFile = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Every decision; - for stdout.")]
JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="The results; - is stdout.")]
PlotFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Latency by percentile, as .png or .svg.")
]


def drive(
    urls: Urls,
    world: WorldOption = WorldName.linear,
    seed: Seed = 0,
    rate: Rates = None,
    concurrency: Concurrency = None,
    seconds: Seconds = 30.0,
    decisions: Decisions = None,
    delay: DelayOption = "0",
    feedback: SendFeedback = True,
    lose: Lose = 0.0,
    duplicate: Duplicate = 0.0,
    drift_at: DriftAt = None,
    heterogeneity: Heterogeneity = 0.0,
    key: ApiKey = None,
    own_cost: OwnCost = False,
    truth: Truth = False,
    csv_: CsvFile = None,
    json_: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Drive synthetic demand at running cities: regret, because the world is known, and latency.

    With --rate, latency counts from the time a call should have left (no coordinated omission)."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.lab.idle import client_rate
    from pricemesh.lab.plan import Delay, Plan
    from pricemesh.lab.plots import check_plot, plot_latency

    if rate is not None and concurrency is not None:
        raise InvalidParameter("--rate is an open loop, --concurrency a closed one: give one of them")
    check_writable(csv_, json_, plot)
    if plot:
        check_plot(plot)
    plan = Plan(
        seed=seed,
        rates=_rates(rate),
        concurrency=1 if concurrency is None else concurrency,
        seconds=None if seconds == 0 else seconds,
        decisions=decisions,
        delay=Delay.parse(delay),
        lose=lose,
        duplicate=duplicate,
        drift_at=drift_at,
        learn=feedback,
    )
    demand = _run(urls, world, plan, key, heterogeneity, csv_, truth)
    own_rate = run_quickly(client_rate()) if own_cost else None
    _show(demand, own_rate, csv_, json_)
    if plot:
        plot_latency({tally.town.name: tally.price_latency for tally in demand.tallies}, plot, "/price")
    for file in (plot, csv_, json_):
        if file and file != "-":
            notes.print(f"wrote {escape(str(file))}", highlight=False)
    if _has_failed(demand.tallies):
        raise typer.Exit(1)


def _run(
    urls: Sequence[str],
    world: WorldName,
    plan: "Plan",
    key: str | None,
    heterogeneity: float,
    csv_: str | None,
    truth: bool,
) -> "Drive":
    from pricemesh.lab.drive import drive as connect
    from pricemesh.lab.tally import ROW_NAMES

    async def run() -> "Drive":
        demand = await connect(
            urls, world=world.value, plan=plan, key=key, heterogeneity=heterogeneity, on_decision=on_decision
        )
        await _watch(demand, truth=truth)
        return demand

    with ExitStack() as stack:
        on_decision: Callable[[Row], None] | None = _LateCsv(stack, csv_, ROW_NAMES) if csv_ else None
        try:
            return run_quickly(run())
        except BrokenPipeError:  # the reader of the CSV on standard output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


class _LateCsv:
    """A CSV file that is opened with its first row, so that a run that cannot begin overwrites nothing."""

    def __init__(self, stack: ExitStack, path: str, names: Sequence[str]) -> None:
        self._stack, self._path, self._names = stack, path, names
        self._writer: Any = None

    def __call__(self, row: Sequence[Any]) -> None:
        if self._writer is None:
            self._writer = csv.writer(self._stack.enter_context(output(self._path)), lineterminator="\n")
            self._writer.writerow(self._names)
        self._writer.writerow(row)


def _rates(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(f"--rate takes a number or a comma list, not {text!r}") from None


async def _watch(demand: "Drive", *, truth: bool) -> None:
    """Run the drive to its end and show its progress; Ctrl-C ends it early."""
    from pricemesh.lab.truth import check_accepted, report

    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_, demand.stop)
    if truth:
        await check_accepted(demand)
    run = asyncio.ensure_future(demand.run())
    reports = asyncio.ensure_future(report(demand)) if truth else None
    next_line, is_ending = time.monotonic() + REPORT_SECONDS, False
    with Live(console=notes, transient=True, auto_refresh=False) as live:
        while not run.done():
            await asyncio.wait([run], timeout=0.25)
            if notes.is_terminal:
                live.update(table(demand.tallies, demand.elapsed), refresh=True)
            elif demand.seconds and not is_ending:
                is_ending = True
                notes.print("waiting for open calls; Ctrl-C again leaves at once", highlight=False)
            elif time.monotonic() > next_line:
                next_line = time.monotonic() + REPORT_SECONDS
                decisions = sum(tally.decisions for tally in demand.tallies)
                notes.print(f"{demand.elapsed:.0f} s, {decisions} decisions", highlight=False)
    if reports is not None:
        reports.cancel()
    await run


def _show(demand: "Drive", own_rate: float | None, csv_: str | None, json_: str | None) -> None:
    tallies, seconds = demand.tallies, demand.seconds
    console = results(stderr="-" in (csv_, json_))
    console.print(table(tallies, seconds))
    for failure, count in sorted(_failures(tallies).items()):
        detail = next((tally.details[failure] for tally in tallies if tally.details.get(failure)), "")
        console.print(f"[red]{count} × {escape(failure)}[/] {escape(detail)}")
    if own_rate is not None:
        console.print(f"this client reaches {own_rate:,.0f} calls a second where nothing is done")
    if json_:
        cities = [as_record(tally, seconds) for tally in tallies]
        record = {"seconds": seconds, "own_calls_per_second": own_rate, "cities": cities}
        with output(json_) as stream:
            json.dump(record, stream, indent=2)
            stream.write("\n")


def _failures(tallies: "Sequence[Tally]") -> Counter[str]:
    return sum((tally.failures for tally in tallies), start=Counter())


def _has_failed(tallies: "Sequence[Tally]") -> bool:
    """Most calls failed, no price was answered, or a city learned none of its feedback."""
    calls = sum(tally.due + tally.feedback_calls for tally in tallies)
    is_deaf = any(tally.feedback_calls and not tally.lessons for tally in tallies)
    return _failures(tallies).total() > calls / 2 or not any(tally.decisions for tally in tallies) or is_deaf


def table(tallies: "Sequence[Tally]", seconds: float) -> Table:
    view = Table(title=f"{seconds:.1f} s", title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    view.add_column("city", no_wrap=True)
    heads = ("decisions", "a second", "regret each", "price chosen most", "learned")
    for head in (*heads, "p50 ms", "p99 ms", "max ms", "failed"):
        view.add_column(head, justify="right", no_wrap=True)
    for tally in tallies:
        at = tally.price_latency.milliseconds()
        most_common = tally.prices.most_common(1)
        view.add_row(
            escape(tally.town.name),
            f"{tally.decisions:,} of {tally.due:,}",
            f"{tally.in_time / seconds:,.0f}" if seconds else "",
            f"{tally.regret_per_decision:.4f}",
            f"{most_common[0][0]:g}" if most_common else "",
            f"{tally.lessons:,}",
            f"{at['p50']:.2f}",
            f"{at['p99']:.2f}",
            f"{at['max']:.1f}",
            f"{sum(tally.failures.values()):,}",
        )
    return view


def as_record(tally: "Tally", seconds: float) -> dict[str, Any]:
    return {
        "city": tally.town.name,
        "url": tally.town.url,
        "due": tally.due,
        "decisions": tally.decisions,
        "decisions_per_second": tally.in_time / seconds if seconds else 0.0,
        "regret_per_decision": tally.regret_per_decision,
        "mean_reward": tally.reward / tally.decisions if tally.decisions else None,
        "chosen": {f"{price:g}": count for price, count in sorted(tally.prices.items())},
        "feedback": {
            "sent": tally.feedback_calls,
            "learned": tally.lessons,
            "lost": tally.losses,
            "duplicated": tally.duplicates,
        },
        "price_milliseconds": tally.price_latency.milliseconds(),
        "feedback_milliseconds": tally.feedback_latency.milliseconds(),
        "failures": dict(tally.failures),
    }

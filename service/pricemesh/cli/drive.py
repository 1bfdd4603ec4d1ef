"""`pricemesh drive`: synthetic demand at live cities."""

import asyncio
import csv
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pricemesh.cli.simulate import WorldName
from pricemesh.cli.terminal import check_writable, notes, output, results, run_quickly
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.lab.drive import Drive, Tally

EXAMPLES = """
**Examples**

`pricemesh drive http://127.0.0.1:8001` — one caller, 30 seconds, the paper's world

`pricemesh drive http://127.0.0.1:8001 http://127.0.0.1:8002 --rate 50 --seconds 60 --plot latency.png`

`pricemesh drive http://127.0.0.1:8001 --concurrency 32 --own-cost` — as fast as it goes

`pricemesh drive URL --rate 20 --delay 1000 --lose 0.2 --duplicate 0.1` — feedback as it really is
"""


def drive(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="The cities' addresses.")],
    world: Annotated[WorldName, typer.Option(help="Where demand comes from.")] = WorldName.linear,
    seed: Annotated[int, typer.Option(help="Of the world: the same seed brings the same customers.")] = 0,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="R", help="Open loop: decisions a second at each city; a comma list: one for each."
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="C", help="Closed loop: callers at each city. [default: 1]")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long; 0: until Ctrl-C.")] = 30.0,
    decisions: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after so many at each city.")
    ] = None,
    delay: Annotated[
        str, typer.Option(help="Feedback comes late: 5s (exponential, mean), or up to 1000 (decisions).")
    ] = "0",
    feedback: Annotated[
        bool, typer.Option("--feedback/--no-feedback", help="Post rewards, or only ask for prices.")
    ] = True,
    lose: Annotated[float, typer.Option(metavar="SHARE", help="Feedback that never comes.")] = 0.0,
    duplicate: Annotated[float, typer.Option(metavar="SHARE", help="Feedback that comes twice.")] = 0.0,
    drift_at: Annotated[
        int | None, typer.Option(metavar="N", help="After so many decisions the world is another.")
    ] = None,
    heterogeneity: Annotated[float, typer.Option(help="How much the cities differ.")] = 0.0,
    key: Annotated[
        str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key: price, feedback, read.")
    ] = None,
    own_cost: Annotated[
        bool,
        typer.Option("--own-cost", help="Measure this client too: against an endpoint that does nothing."),
    ] = False,
    truth: Annotated[
        bool, typer.Option("--truth", help="Report regret to the cities, for their page (lab.demo).")
    ] = False,
    csv_: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Every decision; - for stdout.")
    ] = None,
    json_: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="The results; - is stdout.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Latency by percentile, as .png or .svg.")
    ] = None,
) -> None:
    """Drive synthetic demand at running cities: regret, because the world is known, and latency.

    With --rate, latency counts from the time a call should have left (no coordinated omission)."""
    from pricemesh.lab.drive import ROW_NAMES
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
    with ExitStack() as stack:
        decided = _LateCsv(stack, csv_, ROW_NAMES) if csv_ else None
        try:
            driven = run_quickly(_run(urls, world.value, plan, key, heterogeneity, decided, truth))
        except BrokenPipeError:  # whoever read the CSV has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
    tallies = driven.tallies
    own = run_quickly(own_rate()) if own_cost else None
    console = results(stderr="-" in (csv_, json_))
    took = driven.seconds
    console.print(table(tallies, took))
    failures: Counter[str] = sum((tally.failures for tally in tallies), start=Counter())
    for said, count in sorted(failures.items()):
        why = next((tally.explained[said] for tally in tallies if tally.explained.get(said)), "")
        console.print(f"[red]{count} × {escape(said)}[/] {escape(why)}")
    if own is not None:
        console.print(f"this client reaches {own:,.0f} calls a second where nothing is done")
    record = {"seconds": took, "own_calls_per_second": own, "cities": [as_record(t, took) for t in tallies]}
    if json_:
        with output(json_) as stream:
            json.dump(record, stream, indent=2)
            stream.write("\n")
    if plot:
        plot_latency({tally.town.name: tally.price_latency for tally in tallies}, plot, "/price")
    for file in (plot, csv_, json_):
        if file and file != "-":
            notes.print(f"wrote {escape(str(file))}", highlight=False)
    asked = sum(tally.due + tally.feedback_sent for tally in tallies)
    unheard = any(tally.feedback_sent and not tally.learned for tally in tallies)
    if failures.total() > asked / 2 or not any(tally.decisions for tally in tallies) or unheard:
        raise typer.Exit(1)


class _LateCsv:
    """A CSV that is opened with its first row: a run that cannot begin leaves an old file as it was."""

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


async def _run(
    urls: Sequence[str],
    world: str,
    plan: Any,
    key: str | None,
    heterogeneity: float,
    decided: Any,
    truth: bool,
) -> "Drive":
    from pricemesh.lab.drive import drive as ready
    from pricemesh.lab.truth import check_taken, report

    driven = await ready(urls, world=world, plan=plan, key=key, heterogeneity=heterogeneity, decided=decided)
    loop = asyncio.get_running_loop()
    for told in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(told, driven.stop)
    if truth:
        await check_taken(driven)
    running = asyncio.ensure_future(driven.run())
    reporting = asyncio.ensure_future(report(driven)) if truth else None
    said, closing = time.monotonic(), False
    with Live(console=notes, transient=True, auto_refresh=False) as live:
        while not running.done():
            await asyncio.wait([running], timeout=0.25)
            if notes.is_terminal:
                live.update(table(driven.tallies, driven.elapsed), refresh=True)
            elif driven.seconds and not closing:
                closing = True
                notes.print("waiting for what is under way; Ctrl-C again leaves at once", highlight=False)
            elif time.monotonic() - said > 10:
                said = time.monotonic()
                made = sum(tally.decisions for tally in driven.tallies)
                notes.print(f"{driven.elapsed:.0f} s, {made} decisions", highlight=False)
    if reporting is not None:
        reporting.cancel()
    await running
    return driven


async def own_rate(url: str | None = None, seconds: float = 2.0) -> float:
    """Calls a second that this client reaches where nothing is done."""
    from pricemesh.lab.caller import Caller
    from pricemesh.lab.idle import idle_endpoint

    if url is None:
        with idle_endpoint() as own:
            return await own_rate(own, seconds)
    caller = Caller(url)
    ends = time.perf_counter() + seconds
    body = json.dumps({"shared": {f"feature{i}": 0.5 for i in range(20)}}).encode()

    async def ask() -> int:
        calls = 0
        while time.perf_counter() < ends:
            _, answer = await caller.call("POST", "/price", body)
            json.loads(answer)
            calls += 1
        return calls

    made = sum(await asyncio.gather(*(ask() for _ in range(32))))
    caller.close()
    return made / seconds


def table(tallies: "Sequence[Tally]", seconds: float) -> Table:
    made = Table(title=f"{seconds:.1f} s", title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    made.add_column("city", no_wrap=True)
    heads = (
        "decisions",
        "a second",
        "regret each",
        "price chosen most",
        "learned",
        "p50 ms",
        "p99 ms",
        "max ms",
        "failed",
    )
    for head in heads:
        made.add_column(head, justify="right", no_wrap=True)
    for tally in tallies:
        at = tally.price_latency.milliseconds()
        most = tally.chosen.most_common(1)
        made.add_row(
            escape(tally.town.name),
            f"{tally.decisions:,} of {tally.due:,}",
            f"{tally.in_time / seconds:,.0f}" if seconds else "",
            f"{tally.regret_per_decision:.4f}",
            f"{most[0][0]:g}" if most else "",
            f"{tally.learned:,}",
            f"{at['p50']:.2f}",
            f"{at['p99']:.2f}",
            f"{at['max']:.1f}",
            f"{sum(tally.failures.values()):,}",
        )
    return made


def as_record(tally: "Tally", seconds: float) -> dict[str, Any]:
    return {
        "city": tally.town.name,
        "url": tally.town.url,
        "due": tally.due,
        "decisions": tally.decisions,
        "decisions_per_second": tally.in_time / seconds if seconds else 0.0,
        "regret_per_decision": tally.regret_per_decision,
        "mean_reward": tally.reward / tally.decisions if tally.decisions else None,
        "chosen": {f"{price:g}": count for price, count in sorted(tally.chosen.items())},
        "feedback": {
            "sent": tally.feedback_sent,
            "learned": tally.learned,
            "lost": tally.lost,
            "duplicated": tally.duplicated,
        },
        "price_milliseconds": tally.price_latency.milliseconds(),
        "feedback_milliseconds": tally.feedback_latency.milliseconds(),
        "failures": dict(tally.failures),
    }

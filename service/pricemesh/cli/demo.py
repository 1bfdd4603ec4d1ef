"""`pricemesh demo`: starts cities that learn together, and the same cities alone, on this machine."""

import asyncio
import io
import json
import re
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pricemesh.cli.terminal import check_writable, notes, results, run_quickly
from pricemesh.cli.worlds import WorldName, WorldOption
from pricemesh.errors import InvalidParameter

if TYPE_CHECKING:
    from pricemesh.lab.caller import Caller
    from pricemesh.lab.demo import CityProcesses
    from pricemesh.lab.drive import Drive
    from pricemesh.lab.plan import Plan
    from pricemesh.lab.tally import Tally

POLICIES = ("demand", "netpool", "netlinucb", "netsgducb")  # those that share what they learn
BASELINE = "netlinucb"  # the paper's: a third fleet, in the market
MIN_PLOT_DECISIONS = 10
REPORT_SECONDS = 10  # between two lines of progress, where there is no terminal

EXAMPLES = """
**Examples**

`pricemesh demo` — four cities, 45 seconds

`pricemesh demo --cities 6 --policy netlinucb --world linear --seconds 90`

`pricemesh demo --keep` — leaves databases and logs to look at
"""


Cities = Annotated[int, typer.Option(metavar="N", help="Cities, 2 to 8.")]
PolicyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="demand, netpool, netlinucb or netsgducb. [default: demand in the market, else netpool]",
    ),
]
Rate = Annotated[float, typer.Option(help="Decisions a second at each city.")]
Seconds = Annotated[float, typer.Option(help="How long.")]
Seed = Annotated[int, typer.Option(help="Of the world.")]
PlotFile = Annotated[Path, typer.Option(metavar="FILE", help="The picture at the end.")]
CaptureFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep the live view's last frame, as .svg.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave databases and logs.")]


class Demonstration(NamedTuple):
    """The same customers at cities that gossip, at the same cities alone, and at a mesh of the paper's."""

    together: "Drive"
    alone: "Drive"
    baseline: "Drive | None"
    peers: list[str]  # of each city that gossips: how many are fresh, and the age of the oldest

    @property
    def drives(self) -> "list[Drive]":
        return [self.together, self.alone, *([self.baseline] if self.baseline else [])]


class Fleet(NamedTuple):
    """Cities of one policy, which gossip or do not."""

    kind: str
    policy: str
    gossips: bool


def demo(
    cities: Cities = 4,
    policy: PolicyName = None,
    world: WorldOption = WorldName.market,
    rate: Rate = 15.0,
    seconds: Seconds = 45.0,
    seed: Seed = 0,
    plot: PlotFile = Path("demo.png"),
    capture: CaptureFile = None,
    keep: Keep = False,
) -> None:
    """Start real cities on this machine, send them synthetic demand, and watch them learn together:
    beside them the same cities with the same customers, each alone, and as a mesh of netlinucb."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.lab.demo import CITY_NAMES, CityProcesses
    from pricemesh.lab.plan import Plan
    from pricemesh.lab.plots import check_plot, plot_mesh_and_alone

    if not 2 <= cities <= len(CITY_NAMES):
        raise InvalidParameter(f"--cities: from 2 to {len(CITY_NAMES)}")
    policy = policy or ("demand" if world is WorldName.market else "netpool")
    if policy not in POLICIES:
        raise InvalidParameter(f"--policy {policy} shares nothing between running cities: try netpool")
    if policy == "demand" and world is not WorldName.market:
        raise InvalidParameter(f"--policy demand learns from sales, and the {world.value} world has none")
    check_plot(plot)
    check_writable(plot, capture)
    plan = Plan(seed=seed, rates=(rate,), seconds=seconds)
    if not seconds > 0:
        raise InvalidParameter("--seconds: more than 0; Ctrl-C ends it earlier")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the processes are stopped below
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-demo-"))
    processes = CityProcesses(folder)
    try:
        demonstration = run_quickly(_run(processes, folder, cities, policy, world, plan))
    except KeyboardInterrupt:
        notes.print("stopped before there was anything to show")
        raise typer.Exit(130) from None
    finally:
        processes.stop()
        if keep:
            notes.print(f"databases and logs are in {folder}", highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    console = results(stderr=False)
    together, alone = demonstration.together.tallies, demonstration.alone.tallies
    console.print(_final(demonstration))
    title = f"{cities} cities of the {world.value} world, {policy}: together and alone"
    if all(tally.decisions >= MIN_PLOT_DECISIONS for tally in (*together, *alone)):
        plot_mesh_and_alone(together, alone, plot, title)
        console.print(f"wrote {plot}", highlight=False)
    if capture:
        _write_frame(_view(demonstration), capture)


async def _run(
    processes: "CityProcesses",
    folder: Path,
    cities: int,
    policy: str,
    world: WorldName,
    plan: "Plan",
) -> Demonstration:
    """Start the cities, drive them by the plan, and show progress until both drives have ended."""
    from pricemesh.lab.drive import drive
    from pricemesh.lab.truth import report

    fleets = [Fleet("mesh", policy, True), Fleet("alone", policy, False)]
    if policy != BASELINE and world is WorldName.market:
        fleets.append(Fleet("baseline", BASELINE, True))
    with notes.status(f"starting {cities} cities that gossip, and the same {cities} alone"):
        urls = [_start(processes, folder, cities, fleet, world) for fleet in fleets]
        await processes.wait_until_ready([url for fleet in urls for url in fleet])
    together, alone, *baseline = [await drive(each, world=world.value, plan=plan) for each in urls]
    demonstration = Demonstration(together, alone, baseline[0] if baseline else None, [""] * cities)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for each in demonstration.drives:
            each.stop()

    for signal_ in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_, stop)
    if not notes.is_terminal:
        notes.print(f"watch: {' '.join(urls[0])} and {urls[0][0]}/mesh", highlight=False)
    background = [asyncio.ensure_future(_watch_peers(together.callers, demonstration.peers))]
    background.append(asyncio.ensure_future(report(together, alone)))
    run = asyncio.ensure_future(_run_all(demonstration.drives))
    try:
        await _show_progress(run, demonstration, processes)
    except BaseException:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        raise
    finally:
        for task in background:
            task.cancel()
    return demonstration


def _start(
    processes: "CityProcesses", folder: Path, cities: int, fleet: Fleet, world: WorldName
) -> list[str]:
    """Start the cities of a fleet; their addresses."""
    from pricemesh.city.gossip_secrets import new_secret
    from pricemesh.lab.demo import CITY_NAMES, city_settings, free_ports
    from pricemesh.lab.market import Market
    from pricemesh.lab.worlds import Linear, World

    truth: World = Market(cities=cities) if world is WorldName.market else Linear(cities=cities)
    ports, secret = free_ports(cities), new_secret("demo")
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    for name, port, own in zip(CITY_NAMES, ports, urls, strict=False):
        peers = [url for url in urls if url != own] if fleet.gossips else []
        database = folder / f"{name}-{fleet.kind}.db"
        settings = city_settings(truth, name, database, fleet.policy, peers, secret)
        processes.start(f"{name}-{fleet.kind}", port, settings)
    return urls


async def _show_progress(
    run: "asyncio.Future[None]", demonstration: Demonstration, processes: "CityProcesses"
) -> None:
    """A live view on a terminal, else a line now and then. Raises NotStarted if a city ends."""
    together, alone = demonstration.together, demonstration.alone
    last_line = 0.0
    with Live(console=notes, transient=True, auto_refresh=False) as live:
        while not run.done():
            await asyncio.wait([run], timeout=0.25)
            if not together.seconds:
                processes.check()
            if notes.is_terminal:
                live.update(_view(demonstration), refresh=True)
            elif together.elapsed - last_line >= REPORT_SECONDS:
                last_line = together.elapsed
                notes.print(f"{last_line:.0f} s: {_gain(together.tallies, alone.tallies)}", highlight=False)
    await run


async def _run_all(drives: "Sequence[Drive]") -> None:
    await asyncio.gather(*(each.run() for each in drives))


async def _watch_peers(callers: "Sequence[Caller]", summaries: list[str]) -> None:
    """Keep a summary of each city's peers up to date, until cancelled."""
    while True:
        for i, caller in enumerate(callers):
            with suppress(Exception):
                _, body = await caller.call("GET", "/state")
                peers = json.loads(body)["peers"]
                fresh = [peer for peer in peers if peer["status"] == "fresh"]
                oldest = max((peer["age_seconds"] or 0.0 for peer in fresh), default=0.0)
                summaries[i] = f"{len(fresh)} of {len(peers)}, {oldest:.1f} s"
        await asyncio.sleep(1.0)


def _write_frame(frame: Group, path: Path) -> None:
    """Write an SVG without the fonts that rich would load from the network."""
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(frame)
    svg = console.export_svg(title="pricemesh demo")
    path.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def _mean(tallies: "Sequence[Tally]") -> float:
    return sum(tally.regret for tally in tallies) / max(1, sum(tally.decisions for tally in tallies))


def _gain(together: "Sequence[Tally]", alone: "Sequence[Tally]") -> str:
    mesh, single = _mean(together), _mean(alone)
    ratio = f", {mesh / single:.2f} of it" if single else ""
    return f"regret a decision: {single:.4f} alone, {mesh:.4f} together{ratio}"


def _view(demonstration: Demonstration) -> Group:
    together, alone, peers = demonstration.together, demonstration.alone, demonstration.peers
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("city", no_wrap=True)
    for head in ("decisions", "regret each, together", "alone", "price chosen most", "fresh peers, oldest"):
        table.add_column(head, justify="right", no_wrap=True)
    for mesh, single, peer_summary in zip(together.tallies, alone.tallies, peers, strict=True):
        most_common = mesh.prices.most_common(1)
        better = mesh.regret_per_decision < single.regret_per_decision
        table.add_row(
            mesh.town.name,
            f"{mesh.decisions:,}",
            f"[{'green' if better else 'yellow'}]{mesh.regret_per_decision:.4f}[/]",
            f"{single.regret_per_decision:.4f}",
            f"{most_common[0][0]:g}" if most_common else "",
            peer_summary,
        )
    watch = together.tallies[0].town.url
    remaining = max(0.0, (together.plan.seconds or 0.0) - together.elapsed)
    return Group(
        Text(f"{len(together.tallies)} cities learning together, and each alone   {remaining:3.0f} s left"),
        table,
        Text(_gain(together.tallies, alone.tallies), style="bold"),
        Text(f"watch: {watch} and {watch}/mesh   Ctrl-C ends with the table", style="dim"),
    )


def _final(demonstration: Demonstration) -> Table:
    together, alone = demonstration.together.tallies, demonstration.alone.tallies
    baseline = demonstration.baseline.tallies if demonstration.baseline else None
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, show_footer=True)
    mesh, single = _mean(together), _mean(alone)
    decisions = sum(tally.decisions for tally in together)
    table.add_column("city", "all", no_wrap=True)
    table.add_column("decisions", f"{decisions:,}", justify="right")
    table.add_column("regret each, alone", f"{single:.4f}", justify="right")
    table.add_column("together", f"{mesh:.4f}", justify="right")
    table.add_column("ratio", f"{mesh / single:.3f}" if single else "", justify="right")
    if baseline:
        table.add_column(f"together, {BASELINE}", f"{_mean(baseline):.4f}", justify="right")
    for head in ("p50 ms", "p99 ms", "max ms", "failed"):
        table.add_column(head, justify="right")
    for i, (one, other) in enumerate(zip(together, alone, strict=True)):
        at = one.price_latency.milliseconds()
        ratio = one.regret_per_decision / other.regret_per_decision if other.regret else None
        table.add_row(
            one.town.name,
            f"{one.decisions:,}",
            f"{other.regret_per_decision:.4f}",
            f"{one.regret_per_decision:.4f}",
            "" if ratio is None else f"{ratio:.3f}",
            *([f"{baseline[i].regret_per_decision:.4f}"] if baseline else []),
            f"{at['p50']:.1f}",
            f"{at['p99']:.1f}",
            f"{at['max']:.0f}",
            str(sum(one.failures.values()) + sum(other.failures.values())),
        )
    return table

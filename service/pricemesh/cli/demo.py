"""`pricemesh demo`: cities that learn together, beside the same cities alone."""

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
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pricemesh.cli.simulate import WorldName
from pricemesh.cli.terminal import check_writable, notes, results, run_quickly
from pricemesh.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from pricemesh.lab.caller import Caller
    from pricemesh.lab.demo import CityProcesses
    from pricemesh.lab.drive import Drive, Tally
    from pricemesh.lab.plan import Plan

EXAMPLES = """
**Examples**

`pricemesh demo` — four cities, 45 seconds

`pricemesh demo --cities 6 --policy netlinucb --world linear --seconds 90`

`pricemesh demo --keep` — leaves databases and logs to look at
"""


def demo(
    cities: Annotated[int, typer.Option(metavar="N", help="Cities, 2 to 8.")] = 4,
    policy: Annotated[str, typer.Option(metavar="NAME", help="netpool, netlinucb or netsgducb.")] = "netpool",
    world: Annotated[WorldName, typer.Option(help="Where demand comes from.")] = WorldName.market,
    rate: Annotated[float, typer.Option(help="Decisions a second at each city.")] = 15.0,
    seconds: Annotated[float, typer.Option(help="How long.")] = 45.0,
    seed: Annotated[int, typer.Option(help="Of the world.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The picture at the end. [default: demo.png]")
    ] = None,
    capture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the live view's last frame, as .svg.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave databases and logs.")] = False,
) -> None:
    """Start real cities on this machine, send them synthetic demand, and watch them learn together:
    beside them the same cities with the same customers, each alone."""
    from pricemesh.lab.demo import CITY_NAMES, CityProcesses
    from pricemesh.lab.plan import Plan
    from pricemesh.lab.plots import check_plot, plot_mesh_and_alone

    if not 2 <= cities <= len(CITY_NAMES):
        raise InvalidParameter(f"--cities: from 2 to {len(CITY_NAMES)}")
    if policy not in ("netpool", "netlinucb", "netsgducb"):
        raise InvalidParameter(f"--policy {policy} shares nothing between running cities: try netpool")
    if plot is None:
        with suppress(MissingExtra):
            check_plot(Path("demo.png"))
            plot = Path("demo.png")
        if plot is None:
            notes.print("no picture at the end: it needs pip install 'pricemesh[lab]'", highlight=False)
    else:
        check_plot(plot)
    check_writable(plot, capture)
    plan = Plan(seed=seed, rates=(rate,), seconds=seconds)
    if not seconds > 0:
        raise InvalidParameter("--seconds: more than 0; Ctrl-C ends it earlier")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-demo-"))
    processes = CityProcesses(folder)
    try:
        together, alone, seen = run_quickly(_show(processes, folder, cities, policy, world, plan))
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
    console.print(_final(together.tallies, alone.tallies))
    title = f"{cities} cities of the {world.value} world, {policy}: together and alone"
    if plot is not None and all(tally.decisions >= 10 for tally in (*together.tallies, *alone.tallies)):
        plot_mesh_and_alone(together.tallies, alone.tallies, plot, title)
        console.print(f"wrote {plot}", highlight=False)
    if capture:
        _keep_frame(_view(together, alone, seen), capture)


async def _show(
    processes: "CityProcesses",
    folder: Path,
    cities: int,
    policy: str,
    world: WorldName,
    plan: "Plan",
) -> "tuple[Drive, Drive, list[str]]":
    from pricemesh.city.gossip_secrets import new_secret
    from pricemesh.lab.demo import CITY_NAMES, city_settings, free_ports
    from pricemesh.lab.drive import drive
    from pricemesh.lab.market import Market
    from pricemesh.lab.truth import report
    from pricemesh.lab.worlds import Linear, World

    truth: World = Market(cities=cities) if world is WorldName.market else Linear(cities=cities)
    names, ports, secret = CITY_NAMES[:cities], free_ports(2 * cities), new_secret("demo")
    addresses = [f"http://127.0.0.1:{port}" for port in ports[:cities]]
    with notes.status(f"starting {cities} cities that gossip, and the same {cities} alone"):
        for i, name in enumerate(names):
            peers = [address for address in addresses if address != addresses[i]]
            for kind, port, known in (("mesh", ports[i], peers), ("alone", ports[cities + i], [])):
                database = folder / f"{name}-{kind}.db"
                settings = city_settings(truth, name, database, policy, known, secret)
                processes.start(f"{name}-{kind}", port, settings)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        await processes.ready(urls)
    together = await drive(urls[:cities], world=world.value, plan=plan)
    alone = await drive(urls[cities:], world=world.value, plan=plan)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        together.stop()
        alone.stop()

    for told in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(told, stop)
    running = asyncio.ensure_future(_both(together, alone))
    peers_seen: list[str] = [""] * cities
    watching = asyncio.ensure_future(_watch(together.callers, peers_seen))
    reporting = asyncio.ensure_future(report(together, alone))
    if not notes.is_terminal:
        notes.print(f"watch: {' '.join(urls[:cities])} and {urls[0]}/mesh", highlight=False)
    try:
        with Live(console=notes, transient=True, auto_refresh=False) as live:
            said = 0.0
            while not running.done():
                await asyncio.wait([running], timeout=0.25)
                if not together.seconds:
                    processes.check()
                if notes.is_terminal:
                    live.update(_view(together, alone, peers_seen), refresh=True)
                elif together.elapsed - said >= 10:
                    said = together.elapsed
                    notes.print(f"{said:.0f} s: {_gain(together.tallies, alone.tallies)}", highlight=False)
        await running
    except BaseException:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        raise
    finally:
        watching.cancel()
        reporting.cancel()
    return together, alone, peers_seen


async def _both(together: "Drive", alone: "Drive") -> None:
    await asyncio.gather(together.run(), alone.run())


async def _watch(callers: "Sequence[Caller]", seen: list[str]) -> None:
    """How fresh each city's peers are."""
    while True:
        for i, caller in enumerate(callers):
            with suppress(Exception):
                _, body = await caller.call("GET", "/state")
                peers = json.loads(body)["peers"]
                fresh = [peer for peer in peers if peer["status"] == "fresh"]
                oldest = max((peer["age_seconds"] or 0.0 for peer in fresh), default=0.0)
                seen[i] = f"{len(fresh)} of {len(peers)}, {oldest:.1f} s"
        await asyncio.sleep(1.0)


def _keep_frame(frame: Group, path: Path) -> None:
    """As a picture that loads nothing from elsewhere: the reader's own font does."""
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(frame)
    drawn = console.export_svg(title="pricemesh demo")
    path.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL), encoding="utf-8")


def _mean(tallies: "Sequence[Tally]") -> float:
    return sum(tally.regret for tally in tallies) / max(1, sum(tally.decisions for tally in tallies))


def _gain(together: "Sequence[Tally]", alone: "Sequence[Tally]") -> str:
    mesh, single = _mean(together), _mean(alone)
    ratio = f", {mesh / single:.2f} of it" if single else ""
    return f"regret a decision: {single:.4f} alone, {mesh:.4f} together{ratio}"


def _view(together: "Drive", alone: "Drive", peers: Sequence[str]) -> Group:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("city", no_wrap=True)
    for head in ("decisions", "regret each, together", "alone", "price chosen most", "fresh peers, oldest"):
        table.add_column(head, justify="right", no_wrap=True)
    for mesh, single, seen in zip(together.tallies, alone.tallies, peers, strict=True):
        most = mesh.chosen.most_common(1)
        better = mesh.regret_per_decision < single.regret_per_decision
        table.add_row(
            mesh.town.name,
            f"{mesh.decisions:,}",
            f"[{'green' if better else 'yellow'}]{mesh.regret_per_decision:.4f}[/]",
            f"{single.regret_per_decision:.4f}",
            f"{most[0][0]:g}" if most else "",
            seen,
        )
    watch = together.tallies[0].town.url
    left = max(0.0, (together.plan.seconds or 0.0) - together.elapsed)
    return Group(
        Text(f"{len(together.tallies)} cities learning together, and each alone   {left:3.0f} s left"),
        table,
        Text(_gain(together.tallies, alone.tallies), style="bold"),
        Text(f"watch: {watch} and {watch}/mesh   Ctrl-C ends with the table", style="dim"),
    )


def _final(together: "Sequence[Tally]", alone: "Sequence[Tally]") -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, show_footer=True)
    mesh, single = _mean(together), _mean(alone)
    made = sum(tally.decisions for tally in together)
    table.add_column("city", "all", no_wrap=True)
    table.add_column("decisions", f"{made:,}", justify="right")
    table.add_column("regret each, alone", f"{single:.4f}", justify="right")
    table.add_column("together", f"{mesh:.4f}", justify="right")
    table.add_column("ratio", f"{mesh / single:.3f}" if single else "", justify="right")
    for head in ("p50 ms", "p99 ms", "max ms", "failed"):
        table.add_column(head, justify="right")
    for one, other in zip(together, alone, strict=True):
        at = one.price_latency.milliseconds()
        ratio = one.regret_per_decision / other.regret_per_decision if other.regret else None
        table.add_row(
            one.town.name,
            f"{one.decisions:,}",
            f"{other.regret_per_decision:.4f}",
            f"{one.regret_per_decision:.4f}",
            "" if ratio is None else f"{ratio:.3f}",
            f"{at['p50']:.1f}",
            f"{at['p99']:.1f}",
            f"{at['max']:.0f}",
            str(sum(one.failures.values()) + sum(other.failures.values())),
        )
    return table

"""The cost of late, lost and doubled feedback: `make bench-feedback`, minutes.

Four cities that gossip, as processes, with the same customers each time. Feedback is up to 1,000 decisions
late, a fifth of it lost, a tenth of it sent twice, and all three at once. Regret over that of the clean run.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pricemesh.city.gossip_secrets import new_secret
from pricemesh.cli.terminal import run_quickly
from pricemesh.lab.demo import CITY_NAMES, CityProcesses, city_settings, free_ports
from pricemesh.lab.drive import drive
from pricemesh.lab.market import Market
from pricemesh.lab.plan import Delay, Plan
from pricemesh.lab.tally import Tally

CITIES, DECISIONS, SEED = 4, 4000, 1
CASES = {
    "clean": Plan(),
    "up to 1,000 decisions late": Plan(delay=Delay(decisions=1000)),
    "20 % lost": Plan(lose=0.2),
    "10 % doubled": Plan(duplicate=0.1),
    "all three": Plan(delay=Delay(decisions=1000), lose=0.2, duplicate=0.1),
}


async def play(processes: CityProcesses, urls: Sequence[str], plan: Plan) -> list[Tally]:
    """Drive at a fixed rate, so that every case has the same number of gossip ticks."""
    await processes.wait_until_ready(urls)
    full_plan = Plan(
        seed=SEED,
        rates=(60.0,),
        decisions=DECISIONS,
        delay=plan.delay,
        lose=plan.lose,
        duplicate=plan.duplicate,
    )
    return await (await drive(urls, world="market", plan=full_plan)).run()


def run(plan: Plan) -> tuple[list[Tally], list[int]]:
    import httpx

    folder = Path(tempfile.mkdtemp(prefix="pricemesh-feedback-"))
    processes = CityProcesses(folder)
    ports, secret = free_ports(CITIES), new_secret("k1")
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    try:
        for name, port, own in zip(CITY_NAMES, ports, urls, strict=False):
            peers = [url for url in urls if url != own]
            database = folder / f"{name}.db"
            settings = city_settings(Market(cities=CITIES), name, database, "netpool", peers, secret)
            processes.start(name, port, settings)
        tallies = run_quickly(play(processes, urls, plan))
        versions = [httpx.get(f"{url}/state").json()["version"] for url in urls]
    finally:
        processes.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return tallies, versions


def main() -> None:
    table = Table(title=f"{CITIES} cities, {DECISIONS} decisions each, market world", title_justify="left")
    for head in (
        "feedback",
        "regret a decision",
        "against clean",
        "sent",
        "learned",
        "learned twice",
        "failed",
    ):
        table.add_column(head, justify="right")
    clean = None
    for name, plan in CASES.items():
        tallies, versions = run(plan)
        regret = sum(tally.regret for tally in tallies) / sum(tally.decisions for tally in tallies)
        clean = clean or regret
        calls, losses = sum(tally.feedback_calls for tally in tallies), sum(tally.losses for tally in tallies)
        due = sum(tally.decisions for tally in tallies) - losses
        failed = sum(sum(tally.failures.values()) for tally in tallies)
        row = (f"{regret:.4f}", f"{regret / clean:.3f}", f"{calls:,}", f"{sum(versions):,}")
        table.add_row(name, *row, str(sum(versions) - due), str(failed))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()

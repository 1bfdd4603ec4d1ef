"""`make screenshots`: every view of the dashboard, light and dark, at 400 and 1600 pixels.

A mesh of six cities with customers. One falls silent; one is set up anew under its old name, so that the
others quarantine it. Four of them also run alone, for the comparison of regret. The views for the business
and for operators are those of another mesh, with sales and acts of former days.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright

from pricemesh.city.gossip_secrets import new_secret
from pricemesh.lab.demo import CityProcesses, city_settings, free_ports
from pricemesh.lab.drive import Drive, drive
from pricemesh.lab.market import Market
from pricemesh.lab.plan import Plan
from pricemesh.lab.truth import report
from tests.dashboard.browser import CHROMIUM, HOW_TO_GET_IT, launch_options
from tests.dashboard.shops import Shops

FOLDER = Path("docs/images/dashboard")
DRIVEN = ("lisbon", "porto", "faro", "madrid")
OTHERS = ("braga", "seville")  # the first is set up anew, the second falls silent
DRIVE_SECONDS = 270.0
SECTIONS = {"business": "#business-now", "beliefs": "#beliefs"}  # of the first view
LIVE_SECTIONS = {"now": "#now", "mesh": "#mesh"}
WIDTHS = {400: 860, 1600: 1000}  # and heights
MARGIN_PIXELS = 16
COLOURS = 128  # of a picture: a third of the bytes


class Stage:
    """The cities, and the events of the pictures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._world = Market(cities=len(DRIVEN))
        self._secret = new_secret("pictures")
        ports = free_ports(2 * len(DRIVEN) + len(OTHERS))
        self._ports = dict(zip((*DRIVEN, *OTHERS), ports, strict=False))
        self._alone_ports = ports[-len(DRIVEN) :]
        self._mesh = CityProcesses(folder)
        self._others = {name: CityProcesses(folder) for name in OTHERS}
        self.url = f"http://127.0.0.1:{self._ports['lisbon']}"

    def _settings(self, name: str, database: str, *, gossips: bool = True) -> dict[str, Any]:
        peers = [f"http://127.0.0.1:{port}" for other, port in self._ports.items() if other != name]
        settings = city_settings(
            self._world, name, self._folder / database, "demand", peers if gossips else [], self._secret
        )
        display = {"currency": "EUR", "unit": "ride"}
        return settings | {"guardrails": {"ceiling": 11.5, "max_step": 2.0}, "display": display}

    async def start(self) -> tuple[Drive, Drive]:
        for name in DRIVEN:
            self._mesh.start(name, self._ports[name], self._settings(name, f"{name}.db"))
        for name, port in zip(DRIVEN, self._alone_ports, strict=True):
            settings = self._settings(name, f"{name}-alone.db", gossips=False)
            self._mesh.start(f"{name}-alone", port, settings)
        for name, city in self._others.items():
            city.start(name, self._ports[name], self._settings(name, f"{name}.db"))
        alone = [f"http://127.0.0.1:{port}" for port in self._alone_ports]
        mesh = [f"http://127.0.0.1:{port}" for port in self._ports.values()]
        await self._mesh.wait_until_ready([*mesh, *alone])
        plan = Plan(seed=3, rates=(12.0,))
        together = await drive(mesh[: len(DRIVEN)], world="market", plan=plan)
        return together, await drive(alone, world="market", plan=plan)

    async def customers_elsewhere(self, *names: str) -> None:
        """A few decisions in cities that are not driven, so that they have letters to publish."""
        context = {
            "shared": dict.fromkeys(self._world.feature_names[0], 0.5),
            "local": dict.fromkeys(self._world.feature_names[1], 0.5),
        }
        async with httpx.AsyncClient() as http:
            for name in names:
                for sold in (1, 0, 1) * 15:
                    url = f"http://127.0.0.1:{self._ports[name]}"
                    decision = (await http.post(f"{url}/price", json=context)).json()
                    answer = {"decision_id": decision["decision_id"], "sold": sold}
                    (await http.post(f"{url}/feedback", json=answer)).raise_for_status()

    async def trouble(self) -> None:
        """Set one city up anew under its old name, and stop another."""
        anew = OTHERS[0]
        for name in OTHERS:
            await asyncio.to_thread(self._others[name].stop)
        again = CityProcesses(self._folder)
        again.start(anew, self._ports[anew], self._settings(anew, f"{anew}-anew.db"))
        self._others = {anew: again}
        await again.wait_until_ready([f"http://127.0.0.1:{self._ports[anew]}"])
        await self.customers_elsewhere(anew)

    def stop(self) -> None:
        for processes in (self._mesh, *self._others.values()):
            processes.stop()


async def take(browser: Browser, stage: Stage, shops: Shops, theme: Any, width: int) -> None:
    context = await browser.new_context(
        viewport={"width": width, "height": WIDTHS[width]}, color_scheme=theme, reduced_motion="reduce"
    )
    page = await context.new_page()
    end = f"{theme}-{width}"
    await page.goto(shops.url)
    # A sticky bar would be drawn in the middle of a picture of the whole page.
    await page.evaluate("document.querySelector('.bar').style.position = 'static'")
    for selector in ("#sales-chart svg", "#gain-bars", "#revenue-curve svg", ".change >> nth=0"):
        await page.locator(selector).wait_for()
    for name, selector in SECTIONS.items():
        await picture(page, selector, f"{name}-{end}")
    await page.get_by_role("link", name="Operate").click()
    await page.locator("#operate-peers tr").first.wait_for()
    await picture(page, "#operator", f"operate-{end}")
    await page.get_by_role("button", name="Pin…", exact=True).click()
    await save(page, f"confirm-{end}")
    await page.get_by_role("button", name="Cancel").click()
    await page.goto(f"{stage.url}/#live")
    await page.evaluate("document.querySelector('.bar').style.position = 'static'")
    await page.locator("#network svg").wait_for()
    for name, selector in LIVE_SECTIONS.items():
        await picture(page, selector, f"{name}-{end}")
    await page.locator("#latest-rows a").first.click()
    await page.locator("#waterfall svg").wait_for()
    await save(page, f"decision-{end}")
    await page.goto(f"{stage.url}/mesh")
    await page.locator("#regrets svg").first.wait_for()
    await page.wait_for_timeout(1500)
    await save(page, f"whole-mesh-{end}", full_page=True)
    await context.close()


async def picture(page: Page, selector: str, name: str) -> None:
    """A section with a margin around it."""
    box = await page.locator(selector).bounding_box()
    assert box
    top = box["y"] + await page.evaluate("window.scrollY") - MARGIN_PIXELS
    width = await page.evaluate("document.documentElement.clientWidth")
    clip = {"x": 0.0, "y": max(0.0, top), "width": width, "height": box["height"] + 2 * MARGIN_PIXELS}
    await save(page, name, full_page=True, clip=clip)


async def save(page: Page, name: str, **part: Any) -> None:
    path = FOLDER / f"{name}.png"
    await page.screenshot(path=path, **part)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


async def main() -> None:
    if CHROMIUM is None:
        raise SystemExit(HOW_TO_GET_IT)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pricemesh-pictures-") as folder:
        stage, shops = Stage(Path(folder)), Shops(Path(folder) / "shops")
        try:
            await shops.start()
            together, alone = await stage.start()
            driving = asyncio.gather(together.run(), alone.run())
            reporting = asyncio.ensure_future(report(together, alone))
            await stage.customers_elsewhere(*OTHERS)
            await asyncio.sleep(DRIVE_SECONDS / 2)
            await stage.trouble()
            await asyncio.sleep(DRIVE_SECONDS / 2)
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(**launch_options())
                for theme in ("light", "dark"):
                    for width in WIDTHS:
                        await take(browser, stage, shops, theme, width)
                await browser.close()
            together.stop()
            alone.stop()
            await driving
            reporting.cancel()
        finally:
            stage.stop()
            shops.stop()


if __name__ == "__main__":
    asyncio.run(main())

"""Three cities as processes that gossip, and a real browser to look at them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.dashboard.browser import CHROMIUM, HOW_TO_GET_IT, launch_options
from tests.dashboard.cities import Mesh
from tests.running import CityProcess


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a file of tests: while it lives, its event loop runs in this thread and no other can."""
    if CHROMIUM is None:
        pytest.skip(HOW_TO_GET_IT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**launch_options())
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., "Visit"]]:
    """Open an address in a tab of its own."""
    visits: list[Visit] = []

    def open_tab(url: str, **context: Any) -> "Visit":
        visits.append(Visit(browser, url, context))
        return visits[-1]

    yield open_tab
    for each in visits:
        each.page.context.close()


class Visit:
    """A tab, with the errors on its console and the URLs it has requested."""

    def __init__(self, browser: Browser, url: str, context: dict[str, Any]) -> None:
        self.page: Page = browser.new_context(**context).new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.set_default_timeout(20_000)
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda fault: self.complaints.append(str(fault)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def live(self) -> "Visit":
        self.page.locator("#connection[data-state=live]").wait_for()
        return self

    def says(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def wait_until(self, script: str, argument: Any = None) -> None:
        self.page.wait_for_function(script, arg=argument, timeout=20_000)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    mesh = Mesh(tmp_path_factory.mktemp("mesh"), lab={"demo": True})
    mesh.learn(30)
    yield mesh
    mesh.stop()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a city without peers or customers and returns its address."""
    cities: list[CityProcess] = []

    def start(**sections: Any) -> str:
        cities.append(CityProcess(tmp_path, f"sqlite:///{tmp_path}/city.db", **sections))
        return cities[-1].url

    yield start
    for city in cities:
        city.stop()


@pytest.fixture
def own_mesh(tmp_path: Path) -> Iterator[Mesh]:
    """One that a test may break."""
    mesh = Mesh(tmp_path)
    mesh.learn(10)
    yield mesh
    mesh.stop()

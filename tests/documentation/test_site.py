"""The site: MkDocs builds it without a warning, and it needs no other host."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import sync_playwright

from documentation.llms import pages_of
from tests.dashboard.browser import CHROMIUM, launch_options
from tests.documentation.documents import FENCE, ROOT

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


class Loads(HTMLParser):
    """Addresses that a page loads by itself; `a` only leads there."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for key, value in attrs if key == LOADS.get(tag)]


def is_elsewhere(address: str) -> bool:
    return bool(re.match(r"(\w+:)?//", address))


def test_no_page_or_style_loads_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for path in pages:
        page = Loads()
        page.feed(path.read_text())
        assert [address for address in page.addresses if is_elsewhere(address)] == [], path
    for path in site.rglob("*.css"):
        imports = re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", path.read_text())
        assert [address for address in imports if is_elsewhere(address)] == [], path


def test_what_counts_as_another_host_is_found() -> None:
    page = Loads()
    page.feed('<script src="https://cdn.example/a.js"></script><a href="https://b.example">b</a>')
    assert page.addresses == ["https://cdn.example/a.js"]
    assert is_elsewhere("//cdn.example/a.js")
    assert not is_elsewhere("../css/base.css")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_asks_no_other_host(site: Path) -> None:
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**launch_options())
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in (
            "index.html",
            "tutorials/first-city.html",
            "reference/configuration.html",
            "learning.html",
        ):
            page.goto((site / name).as_uri())
            page.wait_for_load_state("load")
        browser.close()
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = list(pages_of(nav))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))


def test_programs_find_every_page_by_llms_txt(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    paths = re.findall(r"\]\(([^)]+)\)", text)
    assert len(paths) > 50
    assert all((site / path).is_file() for path in paths)
    assert [line for line in text.splitlines() if line.endswith(": ")] == []


def test_lists_and_tables_are_rendered_as_such(site: Path) -> None:
    """Python-Markdown wants an empty line before a list; GitHub does not."""
    for path in site.rglob("*.html"):
        body = re.sub(r"<pre>.*?</pre>", "", path.read_text(), flags=re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", body, flags=re.DOTALL):
            assert not re.search(r"^\s*(- |\d+\. |\|)", paragraph, re.MULTILINE), (path, paragraph[:200])
        source = ROOT / "docs" / path.relative_to(site).with_suffix(".md")
        if source.exists():
            fences = len(FENCE.findall(source.read_text()))
            assert len(re.findall("<pre>", path.read_text())) >= fences, path

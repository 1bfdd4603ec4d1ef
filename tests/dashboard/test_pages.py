"""The files of the page: security headers, caching by content, no other host, and a small size."""

import re
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from benchmarks.pages import page_files
from tests.running import CONTEXT, RunningCity, settings_for

FIRST_PAINT_BYTES = 150_000
PAGES = {"/": "city.html", "/mesh": "mesh.html"}


@pytest.fixture
def city(tmp_path: Path) -> Iterator[RunningCity]:
    running = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    yield running
    running.stop()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_no_script_but_its_own_files(city: RunningCity, path: str) -> None:
    answer = city.http.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert re.findall(r"<script(?![^>]*\bsrc=)", answer.text) == []
    assert re.findall(r'\son\w+="|\sstyle="', answer.text) == []
    assert "//" not in answer.text.replace("<!doctype", "")


def test_no_file_of_the_page_names_another_host_or_writes_markup(city: RunningCity) -> None:
    everything = page_files(city.http, "/", later=True) | page_files(city.http, "/mesh", later=True)
    names = {path.rpartition("/")[2] for path in everything} - {"", "mesh"} | set(PAGES.values())
    assert names == {file.name for file in (files("pricemesh.dashboard") / "page").iterdir()}
    for path, body in everything.items():
        text = body.decode().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        assert re.findall(r"https?://[\w.]+", text) == [], path
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text) == [], path


@pytest.mark.parametrize("path", PAGES)
def test_the_first_paint_loads_few_bytes(city: RunningCity, path: str) -> None:
    """All files of its first view, a history of five busy minutes, the first frame, and 28 days of sales."""
    seconds = [
        {
            "at": 1.7e9 + i + 0.123,
            "decisions": [[arm, 21] for arm in range(5)],
            "learned": 100,
            "reward": 51.833,
        }
        for i in range(300)
    ]
    city.http.post("/price", json=CONTEXT)
    data = len(city.http.get("/events?frames=1").content) + len(str(seconds))
    if path == "/":
        month = time.time() - 27 * 86_400
        data += len(city.http.get("/sales", params={"since": month}).content)
    assert sum(map(len, page_files(city.http, path).values())) + data < FIRST_PAINT_BYTES


def test_an_unchanged_file_is_not_sent_again(city: RunningCity) -> None:
    first = city.http.get("/page/page.css")
    again = city.http.get("/page/page.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = city.http.get("/page/dom.js", headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200
    assert other.headers["content-type"] == "text/javascript; charset=utf-8"


def test_a_path_that_is_no_file_of_the_page_is_not_found(city: RunningCity) -> None:
    for path in ("/page/none.js", "/page/..%2ffeed.py", "/page/"):
        missing = city.http.get(path)
        assert missing.status_code == 404
        assert missing.json()["type"] == "urn:pricemesh:problem:not-found"
    assert city.http.post("/").status_code == 405

"""The view for the business in a real browser: figures against a file of sales, acts, alerts, the mesh."""

import csv
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dashboard.cities import Mesh, wait_until
from tests.dashboard.conftest import Visit
from tests.dashboard.history import DAY_SECONDS, import_sales, simple_customer, write_sales
from tests.running import CONTEXT, CityProcess, settings_for

Open = Callable[..., Visit]
SECTIONS: dict[str, Any] = {
    "reward": {"kind": "purchase"},
    "policy": {"name": "demand"},
    "display": {"currency": "EUR", "unit": "ride"},
}
MAX_ELEMENTS = 400  # of a drawing, however long its time is


class Shop:
    """A city with 1,000 days of sales from a file, and that file."""

    def __init__(self, folder: Path) -> None:
        database = f"sqlite:///{folder}/city.db"
        settings = settings_for(database, **SECTIONS)
        file = folder / "sales.csv"
        write_sales(file, settings, days=1000, per_day=3, customer=simple_customer(settings))
        import_sales(settings, file)
        with file.open() as lines:
            self.rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(lines)]
        self._city = CityProcess(folder, database, **SECTIONS)
        self.url = self._city.url
        self.http = httpx.Client(base_url=self.url, timeout=20)

    def revenue(self, since: float, until: float = 1e12) -> float:
        return sum(row["price"] * row["sold"] for row in self.rows if since <= row["time"] < until)

    def stop(self) -> None:
        self.http.close()
        self._city.stop()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    yield shop
    shop.stop()


def midnight() -> float:
    return time.time() // DAY_SECONDS * DAY_SECONDS


def euros(text: str) -> float:
    assert "€" in text
    return float(re.sub(r"[^\d.]", "", text))


def figure(tab: Visit, name: str) -> str:
    return tab.says(f"[data-figure={name}] .big")


def test_the_figures_are_those_of_the_file_and_of_the_time_before(visit: Open, shop: Shop) -> None:
    tab = visit(shop.url).live()
    tab.page.locator("[data-figure=revenue] .change").wait_for()
    today, day = midnight(), DAY_SECONDS
    assert euros(figure(tab, "revenue")) == pytest.approx(shop.revenue(today - 27 * day), abs=0.51)
    sold = [row for row in shop.rows if row["time"] >= today - 27 * day]
    assert int(figure(tab, "sold")) == sum(row["sold"] for row in sold)
    share = sum(row["sold"] for row in sold) / len(sold)
    assert figure(tab, "conversion") == f"{100 * share:.0f} %"
    change = (
        shop.revenue(today - 27 * day, today) / shop.revenue(today - 54 * day, today - 27 * day) - 1
    ) * 100
    text = tab.says("[data-figure=revenue] .change")
    assert float(re.sub(r"[^\d.]", "", text)) == pytest.approx(abs(change), abs=0.51)
    assert ("▲" if change >= 0 else "▼") in text
    assert "Sold (ride)" in tab.says("#sales-tiles")
    lowest = min(row["price"] for row in shop.rows if row["time"] >= today - 30 * day)
    assert tab.says("#lowest-price") == f"€{lowest:.2f}"
    assert "5 prices from €8.00 to €12.00" in tab.says("#ladder")
    assert tab.complaints == []


def test_a_thousand_days_are_drawn_with_few_elements_and_every_figure_is_in_the_table(
    visit: Open, shop: Shop
) -> None:
    tab = visit(shop.url).live()
    tab.page.get_by_label("The last").select_option("1000")
    tab.page.locator("#sales-table summary").click()
    rows = tab.page.locator("#sales-table tbody tr")
    rows.nth(999).wait_for(state="attached")
    assert rows.count() == 1000
    assert euros(figure(tab, "revenue")) == pytest.approx(
        shop.revenue(midnight() - 999 * DAY_SECONDS), abs=0.51
    )
    assert tab.page.locator("#sales-chart svg *").count() < MAX_ELEMENTS
    bars = tab.page.locator("#sales-chart .bars").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    sold = shop.http.get("/sales", params={"since": time.time() - 999 * DAY_SECONDS}).json()["buckets"]
    assert "".join(bars).count("M") == sum(bucket["revenue"] > 0 for bucket in sold)


@pytest.mark.parametrize(("per", "size"), [("Hours", 48), ("Weeks", 26)])
def test_another_time_is_a_click_away(visit: Open, shop: Shop, per: str, size: int) -> None:
    tab = visit(shop.url).live()
    tab.page.get_by_role("button", name=per).click()
    unit = per.lower().removesuffix("s")
    tab.page.locator(f"#sales-title:text-is('Revenue per {unit}')").wait_for()
    tab.page.locator("#sales-table summary").click()
    tab.page.locator("#sales-table tbody tr").first.wait_for()
    assert tab.page.locator("#sales-table tbody tr").count() == size
    assert tab.page.get_by_role("button", name=per).get_attribute("aria-pressed") == "true"


def test_arrow_keys_go_from_day_to_day(visit: Open, shop: Shop) -> None:
    tab = visit(shop.url).live()
    chart = tab.page.locator("#sales-chart")
    chart.locator("svg").wait_for()
    chart.focus()
    buckets = shop.http.get("/sales", params={"since": time.time() - 27 * DAY_SECONDS}).json()["buckets"]
    tab.page.keyboard.press("End")
    for bucket in buckets[:-4:-1]:
        name = time.strftime("%d %b %Y", time.gmtime(bucket["start"])).removeprefix("0")
        assert name in tab.says("#sales-readout")
        assert f"prices given {bucket['decisions']}" in tab.says("#sales-readout")
        tab.page.keyboard.press("ArrowLeft")


def test_acts_are_marks_on_the_time_axis_and_a_list(visit: Open, shop: Shop) -> None:
    markup = "<b>campaign</b>"
    shop.http.post("/admin/pin", json={"price": 9.0, "reason": markup}).raise_for_status()
    shop.http.delete("/admin/pin", params={"reason": "it is over"}).raise_for_status()
    tab = visit(shop.url).live()
    tab.page.locator("#acts table").wait_for()
    assert "price pinned to €9.00" in tab.says("#acts")
    assert markup in tab.says("#acts")
    assert "pin lifted" in tab.says("#acts")
    title = str(tab.page.locator("#sales-chart .act title").first.text_content())
    assert f"price pinned to €9.00, “{markup}”" in title
    assert "pin lifted, “it is over”" in title
    assert "price pinned" in tab.says("#sales-readout")


def test_what_the_mesh_contributes_is_shown_as_an_estimate(visit: Open, mesh: Mesh) -> None:
    value = mesh.get("/mesh-value")
    for _ in range(20):  # cities of this mesh may hear of one another meanwhile
        tab = visit(mesh.url).live()
        tab.page.locator("#gain-bars").wait_for()
        before, value = value, mesh.get("/mesh-value")
        if value == before:
            break
    assert float(tab.says("#gain").replace("−", "-")) == pytest.approx(value["gain"], abs=6e-4)
    for side in ("together", "alone"):
        assert float(tab.says(f"#gain-{side}-value")) == pytest.approx(value[side], abs=6e-4)
    assert "an estimate" in tab.says("#mesh-value")
    assert "not a measurement" in tab.says("#mesh-value")


def test_a_city_of_values_shows_rewards(visit: Open, mesh: Mesh) -> None:
    total = mesh.get("/sales")["total"]
    tab = visit(mesh.url).live()
    tab.page.locator("[data-figure=reward]").wait_for()
    assert float(figure(tab, "reward")) == pytest.approx(total["reward"], abs=6e-4)
    assert int(figure(tab, "decisions")) == total["decisions"]
    assert tab.page.locator("[data-figure=revenue]").count() == 0
    assert "All is well" in tab.says("#no-alerts")


def test_an_alert_says_what_is_the_matter_and_what_to_do(visit: Open, own_mesh: Mesh) -> None:
    own_mesh.kill("porto")
    wait_until(lambda: bool(own_mesh.get("/alerts")["alerts"]))
    (alert,) = own_mesh.get("/alerts")["alerts"]
    tab = visit(own_mesh.url).live()
    shown = tab.page.locator(f"#alerts .alert[data-kind='{alert['kind']}']")
    shown.wait_for()
    assert "A city does not answer" in shown.inner_text()
    assert "porto" in shown.inner_text()
    assert alert["what_to_do"] in shown.inner_text()


def test_a_decision_opens_in_view_and_closes_where_it_was_opened(visit: Open, shop: Shop) -> None:
    shop.http.post("/price", json=CONTEXT | {"decision_id": "order-1"}).raise_for_status()
    tab = visit(f"{shop.url}/#live", viewport={"width": 400, "height": 800}).live()
    tab.page.get_by_role("link", name="order-1").click()
    title = tab.page.locator("#record-title")
    title.wait_for()
    box = title.bounding_box()
    assert box
    assert 0 <= box["y"] < 400
    tab.page.get_by_role("button", name="Close").click()
    tab.page.locator("#decision").wait_for(state="hidden")
    tab.page.wait_for_url("**/#live")
    assert tab.page.locator("#latest-rows").is_visible()

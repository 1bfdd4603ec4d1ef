"""The page of cities that learn a demand curve, in a real browser."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.dashboard.cities import Mesh, wait_until
from tests.dashboard.conftest import Visit

Open = Callable[..., Visit]
NARROW = {"viewport": {"width": 400, "height": 800}}
CHARTS = ("#chance-curve", "#revenue-curve")


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    mesh = Mesh(tmp_path_factory.mktemp("sales"), reward={"kind": "purchase"})
    mesh.learn(20)
    yield mesh
    mesh.stop()


def latest_beliefs(mesh: Mesh) -> dict[str, Any]:
    """For the context of the latest decision, as the page asks at first."""
    return mesh.post("/beliefs", mesh.get("/decisions?limit=1")["decisions"][0]["context"])


def percent(text: str) -> float:
    return float(text.removesuffix(" %")) / 100


def test_the_curves_are_drawn_with_bands_arms_and_the_chosen_price(visit: Open, sales: Mesh) -> None:
    tab = visit(sales.url).live()
    beliefs = latest_beliefs(sales)
    for chart in CHARTS:
        tab.page.locator(f"{chart} svg[role=img]").wait_for()
        for kind in ("pooled", "own"):
            assert tab.page.locator(f"{chart} path.series.{kind}").count() == 1
            assert tab.page.locator(f"{chart} path.band.{kind}").count() == 1
        assert tab.page.locator(f"{chart} circle.mark").count() == 5
        assert tab.page.locator(f"{chart} path.mark.own").count() == 5
        assert tab.page.locator(f"{chart} .mark.pooled.out[data-arm='0']").count() == 1  # below the floor
        assert tab.page.locator(f"{chart} .ring").get_attribute("data-chosen") == str(beliefs["chosen"])
        description = tab.page.locator(f"{chart} svg").get_attribute("aria-describedby")
        assert "at the chosen price between" in str(tab.page.locator(f"#{description}").text_content())
    price = f"{beliefs['arms'][beliefs['chosen']]['price']:.2f}"
    label = str(tab.page.locator("#chance-curve svg").get_attribute("aria-label"))
    assert label.startswith("Chance of a sale by price: ")
    assert f"at {price}, which is chosen" in label
    assert tab.says("#revenue-title") == "Revenue expected"
    assert not tab.page.locator("#intervals").is_visible()
    assert tab.complaints == []


def test_a_dot_is_where_its_chance_is(visit: Open, sales: Mesh) -> None:
    """Heights of dots are linear in the chances that the city answers: checked by two of them."""
    tab = visit(sales.url).live()
    tab.page.locator("#chance-curve svg").wait_for()
    chances = [arm["chance"] for arm in latest_beliefs(sales)["arms"]]
    places = "dots => dots.map(dot => [dot.dataset.arm, dot.getAttribute('cy')].map(Number))"
    heights = dict(tab.page.locator("#chance-curve circle.mark").evaluate_all(places))
    per_chance = (heights[4] - heights[0]) / (chances[4] - chances[0])
    assert per_chance < 0  # upwards
    for arm in (1, 2, 3):
        expected = heights[0] + per_chance * (chances[arm] - chances[0])
        assert heights[arm] == pytest.approx(expected, abs=0.01)


def test_the_table_has_what_the_city_answers(visit: Open, sales: Mesh) -> None:
    tab = visit(sales.url).live()
    tab.page.locator("#demand-table summary").click()
    tab.page.locator("#demand-table tbody tr").first.wait_for()
    beliefs = latest_beliefs(sales)
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"

    def differ(row: list[str], point: dict[str, Any]) -> bool:
        texts = [percent(row[1]), float(row[3]), percent(row[5]), float(row[7])]
        own = point["own"]
        numbers = [point["chance"], point["revenue"], own["chance"], own["revenue"]]
        return texts != pytest.approx(numbers, abs=0.0051)

    def is_complete() -> bool:
        rows = tab.page.locator("#demand-table tbody tr").evaluate_all(cells)
        return len(rows) == len(beliefs["curve"]) and not any(map(differ, rows, beliefs["curve"]))

    wait_until(is_complete)
    notes = [row[-1] for row in tab.page.locator("#demand-table tbody tr").evaluate_all(cells)]
    assert notes.count("chosen") == 1
    assert notes.count("below the floor") == 1
    assert notes.count("an arm") == 3


def test_the_parts_of_a_decision_add_up_to_its_log_odds(visit: Open, sales: Mesh) -> None:
    sales.decide(decision_id="order-78")
    record = sales.get("/decisions/order-78")
    tab = visit(f"{sales.url}/#decision=order-78").live()
    tab.page.locator("#waterfall svg").wait_for()
    assert "log-odds of a sale" in tab.says("#waterfall-note")
    assert "log-odds" in str(tab.page.locator("#waterfall").text_content())
    tab.page.locator("#waterfall-table summary").click()
    rows = tab.page.locator("#waterfall-table tbody tr")
    rows.first.wait_for()
    texts = [rows.nth(i).locator("td").nth(1).inner_text() for i in range(3)]
    parts = [float(text.replace("−", "-")) for text in texts]
    assert sum(parts) == pytest.approx(math.log(record["chance"] / (1 - record["chance"])), abs=0.002)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(visit: Open, sales: Mesh, scheme: str) -> None:
    tab = visit(sales.url, color_scheme=scheme, **(NARROW if scheme == "dark" else {})).live()
    tab.page.locator("#revenue-curve svg").wait_for()
    tab.page.locator("#sales-chart svg").wait_for()
    for summary in tab.page.locator("summary:visible").all():
        summary.click()
    report = Axe().run(tab.page)
    assert len(report.response["passes"]) > 20
    serious = [fault for fault in report.response["violations"] if fault["impact"] in ("serious", "critical")]
    assert serious == [], report.generate_report()
    assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_city_alone_draws_one_curve(visit: Open, alone: Callable[..., str]) -> None:
    tab = visit(alone(reward={"kind": "purchase", "cost": 2.0})).live()
    tab.page.locator("#chance-curve svg").wait_for()
    for chart in CHARTS:
        assert tab.page.locator(f"{chart} .series").count() == 1
        assert tab.page.locator(f"{chart} .mark.own").count() == 0
    assert tab.says("#revenue-title") == "Margin expected"
    assert not tab.page.locator("#own-key").is_visible()


def test_a_city_of_purchases_with_another_policy_keeps_its_intervals(
    visit: Open, alone: Callable[..., str]
) -> None:
    tab = visit(alone(reward={"kind": "purchase"}, policy={"name": "netpool"})).live()
    tab.page.locator("#intervals svg").wait_for()
    assert not tab.page.locator("#demand").is_visible()

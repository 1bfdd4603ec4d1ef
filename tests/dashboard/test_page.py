"""The page of a city in a real browser, against three cities that gossip."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from pricemesh.http.keys import new_key, write_keys
from tests.dashboard.cities import Mesh, wait_until
from tests.dashboard.conftest import Visit
from tests.running import CONTEXT

Open = Callable[..., Visit]
NARROW = {"viewport": {"width": 400, "height": 800}}


def digits(text: str) -> int:
    return int(re.sub(r"\D", "", text))


def rounded(number: float | None) -> str:
    return "–" if number is None else f"{number:.3f}"


def open_all(tab: Visit) -> None:
    """All details that can be reached: those under a dialog cannot."""
    place = "dialog[open]" if tab.page.locator("dialog[open]").count() else "main"
    for summary in tab.page.locator(f"{place} summary:visible").all():
        summary.click()


def test_the_numbers_on_the_page_are_those_of_the_state(visit: Open, mesh: Mesh) -> None:
    tab = visit(f"{mesh.url}/#live").live()
    state = mesh.state()
    tab.wait_until(
        "n => document.querySelector('#decisions').textContent.replace(/\\D/g, '') === String(n)",
        state["decisions"],
    )
    assert tab.says("#city") == state["city"]
    open_all(tab)
    for name in ("decisions", "feedback", "version"):
        assert digits(tab.says(f"[data-number={name}]")) == state[name]
    for arm in state["arms"]:
        assert digits(tab.says(f"[data-number=count-{arm['arm']}]")) == arm["count"]
        assert tab.says(f"[data-number=mean-{arm['arm']}]") == rounded(arm["mean_reward"])
    assert tab.page.locator(".peer").count() == len(state["peers"]) == 2
    for i, peer in enumerate(state["peers"]):
        row = tab.page.locator(".peer").nth(i)
        assert row.locator("th").inner_text() == peer["origin"]
        assert row.get_attribute("data-status") == peer["status"] == "fresh"
        assert digits(row.locator(".version").inner_text()) == peer["version"]
        share = row.locator(".share").inner_text().removesuffix(" %")
        assert float(share) == pytest.approx(100 * peer["share"], abs=0.51)
        weight = row.locator(".weight").inner_text()
        assert float(weight) == pytest.approx(sum(peer["weights"]) / len(peer["weights"]), abs=0.0051)
    assert "floor 8.50" in tab.says("#in-force")


def test_the_page_updates_without_a_reload(visit: Open, mesh: Mesh) -> None:
    tab = visit(f"{mesh.url}/#live").live()
    tab.page.evaluate("window.sameAsBefore = true")
    before = mesh.state()["decisions"]
    tab.wait_until("n => document.querySelector('#decisions').textContent.replace(/\\D/g, '') >= n", before)
    decision = mesh.decide()
    tab.page.locator(f"#latest-rows a:text-is('{decision['decision_id']}')").wait_for()
    tab.wait_until("n => document.querySelector('#decisions').textContent.replace(/\\D/g, '') > n", before)
    mesh.post("/admin/freeze", {"reason": "looks odd"})
    tab.page.locator("#in-force li.warn").wait_for()
    assert "learning frozen" in tab.says("#in-force li.warn")
    assert "“looks odd”" in tab.says("#in-force li.warn")
    mesh.delete("/admin/freeze")
    tab.page.locator("#in-force li.warn").wait_for(state="detached")
    assert tab.page.evaluate("window.sameAsBefore") is True


def test_a_killed_peer_becomes_silent_and_then_fresh_again(visit: Open, own_mesh: Mesh) -> None:
    tab = visit(f"{own_mesh.url}/#live").live()
    tab.page.locator(".peer[data-status=fresh]").nth(1).wait_for()
    own_mesh.kill("porto")
    tab.page.locator(".peer[data-status=silent]").wait_for()
    assert "porto" in tab.says(".peer[data-status=silent]")
    assert "does not answer" in tab.says(".peer[data-status=silent] .reason")
    tab.wait_until("() => document.querySelector('#network').textContent.includes('silent')")
    assert tab.says("#peers-fresh") == "1 of 2"
    own_mesh.start("porto")
    tab.page.locator(".peer[data-status=fresh]").nth(1).wait_for()


def test_a_peer_with_another_ladder_is_shown_as_such_until_all_have_it(visit: Open, own_mesh: Mesh) -> None:
    prices = [8.0, 9.0, 10.0, 10.5, 11.0, 12.0]
    tab = visit(f"{own_mesh.url}/#live").live()
    own_mesh.change_ladder("porto", prices)
    tab.page.locator(".peer[data-status='other terms']").wait_for()
    assert "porto" in tab.says(".peer[data-status='other terms']")
    assert "heard again when both agree" in tab.says(".peer[data-status='other terms'] .reason")
    assert tab.says("#peers-fresh") == "1 of 2"
    for name in ("faro", "lisbon"):
        own_mesh.change_ladder(name, prices)
    tab = visit(f"{own_mesh.url}/#live").live()
    tab.page.locator(".peer[data-status=fresh]").nth(1).wait_for()


def test_the_page_says_that_a_decision_is_unknown(visit: Open, mesh: Mesh) -> None:
    tab = visit(f"{mesh.url}/#decision").live()
    tab.page.get_by_label("Decision id").fill("nobody-made-this")
    tab.page.get_by_role("button", name="Find").click()
    tab.page.locator("#decision-fault").wait_for()
    assert tab.says("#decision-fault") == "There is no decision “nobody-made-this” in this city."
    assert not tab.page.locator("#record").is_visible()
    tab.page.get_by_label("Decision id").fill("not an id!")
    tab.page.keyboard.press("Enter")
    tab.wait_until("() => !document.querySelector('#decision-fault').textContent.includes('nobody')")
    # The browser itself reports the two refusals, and nothing else is wrong.
    assert all("Failed to load resource" in complaint for complaint in tab.complaints)
    assert len(tab.complaints) == 2


def test_a_decision_is_found_and_its_parts_add_up(visit: Open, mesh: Mesh) -> None:
    decision = mesh.decide(decision_id="order-77", subject="ann")
    record = mesh.get("/decisions/order-77")
    tab = visit(f"{mesh.url}/#decision=order-77").live()
    tab.page.locator("#record").wait_for()
    assert tab.says("#record-title").startswith(f"{decision['price']:.2f} given at")
    facts = tab.says("#facts")
    assert f"{decision['estimate']:.3f}".replace("-", "−") in facts
    assert "ann" in facts
    assert "8.00 (below the floor)" in facts
    tab.page.locator("#waterfall-table summary").click()
    rows = tab.page.locator("#waterfall-table tbody tr")
    rows.first.wait_for()
    assert rows.count() == len(record["contributions"]) == 3
    texts = [rows.nth(i).locator("td").nth(1).inner_text() for i in range(3)]
    parts = [float(text.replace("−", "-")) for text in texts]
    assert sum(parts) == pytest.approx(record["estimate"], abs=0.002)
    assert [rows.nth(i).locator("td").first.inner_text() for i in range(3)] == ["lisbon", "faro", "porto"]


def test_beliefs_follow_the_sliders_and_are_what_the_city_answers(visit: Open, mesh: Mesh) -> None:
    tab = visit(mesh.url).live()
    tab.page.locator("#intervals svg").wait_for()
    context: dict[str, Any] = {"shared": {}, "local": {}}
    for part, name, value in (
        ("shared", "demand", -1.5),
        ("shared", "rain", 0.75),
        ("shared", "event", 2000.0),
        ("local", "tourists", 0.5),
        ("local", "strike", 0.0),
    ):
        context[part][name] = value
        tab.page.get_by_label(f"{name}, exactly").fill(f"{value:g}")
    beliefs = mesh.post("/beliefs", context)
    best = beliefs["arms"][beliefs["chosen"]]
    tab.page.locator("#intervals-table summary").click()
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.replaceAll('−', '-')))"

    def table() -> list[list[str]]:
        rows: list[list[str]] = tab.page.locator("#intervals-table tbody tr").evaluate_all(cells)
        return rows

    def numbers(arm: dict[str, Any]) -> list[float]:
        own = arm["own"]
        bound = arm["estimate"] + arm["radius"]
        return [arm["estimate"], arm["radius"], bound, own["estimate"], own["radius"]]

    expected = [pytest.approx(numbers(arm), rel=0.01, abs=0.06) for arm in beliefs["arms"]]
    wait_until(lambda: [[float(cell) for cell in row[1:6]] for row in table()] == expected)
    cells_now = table()
    assert tab.says("#belief").startswith(f"{best['price']:.2f} would be chosen")
    assert cells_now[0][6] == "below the floor"
    assert cells_now[beliefs["chosen"]][6] == "chosen"
    rain = tab.page.get_by_label("rain", exact=True)
    rain.focus()
    tab.page.keyboard.press("End")
    assert rain.get_attribute("aria-valuetext") == "1.000, from 0 to 1"
    assert tab.page.get_by_label("rain, exactly").input_value() == "1"


def test_the_console_is_clean_and_no_other_host_is_called(visit: Open, mesh: Mesh) -> None:
    mesh.post("/lab/truth", truth(1000))
    tab = visit(mesh.url).live()
    tab.page.locator("#intervals svg").wait_for()
    tab.page.locator("#sales-chart svg").wait_for()
    open_all(tab)
    tab.page.get_by_role("link", name="Operate").click()
    tab.page.locator("#controls").wait_for()
    tab.page.get_by_role("link", name="Live").click()
    tab.page.locator("#prices svg").wait_for()
    open_all(tab)
    tab.page.locator("#latest-rows a").first.click()
    tab.page.locator("#waterfall svg").wait_for()
    open_all(tab)
    tab.page.get_by_role("button", name="Close").click()
    tab.page.get_by_role("button", name="Theme").click()
    tab.page.get_by_role("link", name="Whole mesh").click()
    tab.live()
    tab.page.locator("#cities svg").first.wait_for()
    assert tab.complaints == []
    assert len(tab.requests) > 20
    assert {url for url in tab.requests if not url.startswith(f"{mesh.url}/")} == set()


VIEWS = {  # what is there when a view is complete
    "/#business": ("#sales-chart svg", "#intervals svg", "#acts table"),
    "/#live": ("#prices svg", "#network svg"),
    "/#operate": ("#controls",),
    "/#decision=order-of-axe": ("#waterfall svg", "#then svg"),
    "/mesh": ("#regrets svg",),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", VIEWS)
def test_axe_finds_no_serious_fault(visit: Open, mesh: Mesh, path: str, scheme: str) -> None:
    """The dark ones at 400 pixels, where nothing may overflow."""
    mesh.post("/lab/truth", truth(1000))
    mesh.post("/price", CONTEXT | {"decision_id": "order-of-axe"})
    mesh.post("/admin/freeze", {"reason": "an act to be seen"})
    mesh.delete("/admin/freeze")
    tab = visit(mesh.url + path, color_scheme=scheme, **(NARROW if scheme == "dark" else {})).live()
    for selector in VIEWS[path]:
        tab.page.locator(selector).first.wait_for()
    open_all(tab)
    report = Axe().run(tab.page)
    assert len(report.response["passes"]) > 20
    serious = [fault for fault in report.response["violations"] if fault["impact"] in ("serious", "critical")]
    assert serious == [], report.generate_report()
    assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_the_chosen_theme_survives_a_reload(visit: Open, mesh: Mesh) -> None:
    tab = visit(mesh.url, color_scheme="light").live()
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = tab.page.evaluate(ground)
    for _ in range(2):
        tab.page.get_by_role("button", name="Theme").click()
    assert tab.says("#theme") == "Theme: dark"
    dark = tab.page.evaluate(ground)
    assert dark != light
    tab.page.reload()
    assert tab.page.evaluate(ground) == dark


def test_markup_in_a_reason_is_shown_as_text(visit: Open, own_mesh: Mesh) -> None:
    """A reason is text from an operator or a peer: the page must never read it as markup."""
    tab = visit(f"{own_mesh.url}/#live").live()
    markup = "<img src=x onerror=\"document.title='taken'\"><script>alert(1)</script>"
    own_mesh.post("/admin/pin", {"price": 9.0, "reason": markup})
    tab.page.locator("#in-force li.warn").wait_for()
    assert markup in tab.says("#in-force li.warn")
    assert tab.page.locator("#in-force img").count() == 0
    assert "taken" not in tab.page.title()
    tab.page.get_by_role("link", name="Business").click()
    tab.wait_until("() => document.querySelector('#belief').textContent.includes('pinned it')")


def test_the_page_says_that_its_city_is_lost_and_reconnects(visit: Open, own_mesh: Mesh) -> None:
    tab = visit(own_mesh.url).live()
    own_mesh.kill("lisbon")
    tab.page.locator("#lost").wait_for()
    assert "Connection lost" in tab.says("#lost")
    assert tab.page.locator("#connection").get_attribute("data-state") == "lost"
    own_mesh.start("lisbon")
    tab.page.locator("#lost").wait_for(state="hidden")
    tab.live()


def test_a_city_without_customers_or_peers_says_what_to_do(visit: Open, alone: Callable[..., str]) -> None:
    url = alone()
    tab = visit(url).live()
    tab.page.locator("#no-sales").wait_for()
    assert "POST /price" in tab.says("#no-sales")
    tab.page.locator("#no-letters").wait_for()
    tab.page.get_by_role("link", name="Live").click()
    tab.page.locator("#no-decisions").wait_for()
    assert "POST /price" in tab.says("#no-decisions")
    assert "gossip.peers" in tab.says("#no-peers")
    assert "no guardrail, no pin, no freeze" in tab.says("#in-force")
    whole = visit(f"{url}/mesh").live()
    whole.page.locator("#no-truth").wait_for()
    assert "pricemesh demo" in whole.says("#no-truth")
    assert tab.complaints + whole.complaints == []


def test_a_city_with_keys_asks_for_one_and_then_shows_its_data(
    visit: Open, alone: Callable[..., str], tmp_path: Path
) -> None:
    secret, key = new_key("read")
    write_keys(tmp_path / "keys.toml", {key.id: key})
    url = alone(security={"api_keys_file": str(tmp_path / "keys.toml")})
    tab = visit(url)
    dialog = tab.page.get_by_role("dialog")
    dialog.wait_for()
    tab.page.get_by_label("API key", exact=True).fill("pm_000000000000_wrong")
    tab.page.keyboard.press("Enter")
    tab.page.locator("#key-fault:has-text('not known')").wait_for()
    tab.page.get_by_label("API key", exact=True).fill(secret)
    tab.page.get_by_role("button", name="Use it").click()
    tab.live()
    dialog.wait_for(state="hidden")
    assert tab.says("#city") == "lisbon"
    tab.page.locator("#no-letters").wait_for()
    tab.page.goto(f"{url}/mesh")
    tab.live()  # the same tab still has the key
    assert secret not in tab.page.content()


def test_the_whole_mesh_shows_every_city_and_the_reported_truth(visit: Open, mesh: Mesh) -> None:
    mesh.post("/lab/truth", truth(2000))
    tab = visit(f"{mesh.url}/mesh").live()
    tab.page.locator("#regrets svg").nth(2).wait_for()
    assert [tab.page.locator("#cities h3").nth(i).inner_text() for i in range(3)] == [
        "lisbon",
        "faro",
        "porto",
    ]
    assert tab.says("#regret-together") == "0.0250"
    assert tab.says("#regret-alone") == "0.0500"
    assert tab.says("#gain") == "50 %"
    tab.wait_until("() => document.querySelector('#truth-decisions').textContent === '6,000'")
    mesh.post("/lab/truth", truth(4000))
    tab.wait_until("() => document.querySelector('#truth-decisions').textContent === '12,000'")
    versions = {"lisbon": mesh.state()["version"]} | {
        p["origin"]: p["version"] for p in mesh.state()["peers"]
    }
    for name, version in versions.items():
        card = tab.page.locator("#cities > li", has=tab.page.get_by_role("heading", name=name, exact=True))
        assert f"{version:,}" in card.locator(".growth").inner_html()


def truth(decisions: int) -> dict[str, Any]:
    def regret(each: float) -> dict[str, Any]:
        return {"decisions": decisions, "regret": each * decisions}

    return {
        "cities": [
            {"city": name, "together": regret(0.025), "alone": regret(0.05)}
            for name in ("lisbon", "porto", "faro")
        ]
    }

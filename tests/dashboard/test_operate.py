"""The operator's view in a real browser: every act with a reason and a confirmation, against real cities."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricemesh.http.keys import new_key, write_keys
from tests.dashboard.cities import Mesh, wait_until
from tests.dashboard.conftest import Visit

Open = Callable[..., Visit]


@pytest.fixture
def tab(visit: Open, mesh: Mesh) -> Visit:
    tab = visit(f"{mesh.url}/#operate").live()
    tab.page.locator("#operate-peers tr").nth(1).wait_for()
    return tab


def press(tab: Visit, name: str) -> None:
    tab.page.get_by_role("button", name=name, exact=True).click()


def confirm(tab: Visit, verb: str, reason: str) -> str:
    """Give the reason, confirm, and return what the page says then."""
    tab.page.get_by_label("Reason, for the record").fill(reason)
    tab.page.locator("#confirm").get_by_role("button", name=verb, exact=True).click()
    tab.page.locator("#confirm").wait_for(state="hidden")
    tab.page.locator("#outcome:has-text('Done')").wait_for()
    return tab.says("#outcome")


def newest_act(mesh: Mesh) -> tuple[str, str, Any]:
    act = mesh.get("/acts?limit=1")["acts"][0]
    return act["kind"], act["reason"], act["detail"]


def test_a_price_is_pinned_and_the_pin_lifted(tab: Visit, mesh: Mesh) -> None:
    tab.page.get_by_label("One price for everyone").select_option("10")
    press(tab, "Pin…")
    assert "every customer gets 10.00" in tab.says("#confirm-text")
    assert mesh.state()["controls"] == {}  # not before it is confirmed
    assert "everyone gets 10.00" in confirm(tab, "Pin the price", "a campaign")
    assert newest_act(mesh) == ("pin", "a campaign", {"price": 10.0})
    assert mesh.decide()["price"] == 10.0
    tab.page.locator("#pin-state:has-text('Pinned to 10.00')").wait_for()
    assert "“a campaign”" in tab.says("#pin-state")
    press(tab, "Lift the pin…")
    assert "the pin is lifted" in confirm(tab, "Lift the pin", "it is over")
    assert newest_act(mesh)[:2] == ("lift pin", "it is over")
    tab.page.locator("#pin-off").wait_for()
    assert mesh.state()["controls"] == {}
    assert tab.complaints == []


def test_a_refusal_is_shown_in_words_and_nothing_happens(tab: Visit, mesh: Mesh) -> None:
    tab.page.get_by_label("One price for everyone").select_option("8")  # below the floor
    press(tab, "Pin…")
    tab.page.get_by_label("Reason, for the record").fill("too low")
    press(tab, "Pin the price")
    tab.page.locator("#confirm-fault:has-text('floor')").wait_for()
    press(tab, "Cancel")
    tab.page.locator("#confirm").wait_for(state="hidden")
    assert tab.says("#outcome") == ""
    assert mesh.state()["controls"] == {}


def test_without_a_reason_or_after_cancelling_nothing_is_done(tab: Visit, mesh: Mesh) -> None:
    before = mesh.get("/acts")
    press(tab, "Freeze learning…")
    press(tab, "Freeze learning")
    assert tab.page.locator("#confirm").is_visible()  # the reason is missing
    tab.page.keyboard.press("Escape")
    tab.page.locator("#confirm").wait_for(state="hidden")
    assert mesh.get("/acts") == before


def test_learning_is_frozen_and_the_freeze_lifted(tab: Visit, mesh: Mesh) -> None:
    press(tab, "Freeze learning…")
    confirm(tab, "Freeze learning", "odd answers")
    tab.page.locator("#freeze-state:has-text('Frozen')").wait_for()
    version = mesh.state()["version"]
    mesh.decide()
    assert mesh.state()["version"] == version
    press(tab, "Lift the freeze…")
    confirm(tab, "Lift the freeze", "explained")
    tab.page.locator("#freeze-off").wait_for()
    assert newest_act(mesh)[:2] == ("lift freeze", "explained")
    mesh.decide()
    assert mesh.state()["version"] == version + 1


def test_answers_of_decisions_are_counted_taken_back_and_count_again(tab: Visit, mesh: Mesh) -> None:
    for i in range(3):
        mesh.decide(decision_id=f"till-{i}")
    learned = mesh.state()["lessons"]["learned"]
    tab.page.get_by_label("Decision ids").fill("till-0\ntill-1 till-2")
    press(tab, "Count them first…")
    tab.page.locator("#confirm").wait_for()
    assert tab.says("#confirm-title") == "Take 3 answers back?"
    assert mesh.state()["lessons"]["retracted"] == 0
    assert "3 answers taken back" in confirm(tab, "Take them back", "a till that counted twice")
    wait_until(lambda: bool(mesh.state()["lessons"]["learned"] == learned - 3))
    row = tab.page.locator("#retractions tbody tr").first
    row.locator("text=a till that counted twice").wait_for()
    number = row.locator("td").first.inner_text()
    press(tab, f"Lift retraction {number}")
    assert "3 answers count again" in confirm(tab, "Let them count again", "the till was right")
    wait_until(lambda: bool(mesh.state()["lessons"]["learned"] == learned))
    tab.page.locator("#retractions:has-text('lifted, “the till was right”')").wait_for()


def test_answers_of_a_time_are_taken_back(tab: Visit, mesh: Mesh) -> None:
    total = mesh.state()["feedback"]
    tab.page.get_by_label("received in this time").check()
    for label, at in (("From", time.time() - 7200), ("Until", time.time() + 7200)):
        text = tab.page.evaluate(
            "at => new Date(at * 1000 - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 19)",
            at,
        )
        tab.page.get_by_label(label, exact=True).fill(text)
    press(tab, "Count them first…")
    tab.page.locator("#confirm").wait_for()
    assert f"{total} answers will stop counting" in tab.says("#confirm-text")
    press(tab, "Cancel")
    tab.page.get_by_label("of these decisions").check()
    tab.page.get_by_label("Decision ids").fill("nobody-made-this")
    press(tab, "Count them first…")
    tab.page.locator("#retract-fault:has-text('nobody-made-this')").wait_for()
    assert not tab.page.locator("#confirm").is_visible()


def test_a_city_is_dropped_readmitted_and_its_new_key_accepted(tab: Visit, mesh: Mesh) -> None:
    def status() -> str:
        return str(next(p["status"] for p in mesh.state()["peers"] if p["origin"] == "faro"))

    press(tab, "Drop faro")
    assert "What faro told this city is subtracted" in tab.says("#confirm-text")
    confirm(tab, "Drop faro", "it lies")
    assert status() == "dropped"
    tab.page.get_by_role("button", name="Readmit faro").wait_for()
    press(tab, "Readmit faro")
    confirm(tab, "Readmit faro", "it was mended")
    wait_until(lambda: status() == "fresh")
    press(tab, "New key faro")
    tab.page.get_by_label("New public key of faro").fill(mesh.state("faro")["gossip"]["key"])
    assert "new key of faro is accepted" in confirm(tab, "Accept the key", "set up anew")
    assert newest_act(mesh) == ("trust", "set up anew", {"peer": "faro"})


def test_with_keys_an_operator_needs_one_with_the_scope_admin(
    visit: Open, alone: Callable[..., str], tmp_path: Path
) -> None:
    (reading, read_key), (operating, admin_key) = new_key("read"), new_key("admin")
    write_keys(tmp_path / "keys.toml", {key.id: key for key in (read_key, admin_key)})
    url = alone(security={"api_keys_file": str(tmp_path / "keys.toml")})
    tab = visit(f"{url}/#operate")
    tab.page.get_by_label("API key", exact=True).fill(reading)
    press(tab, "Use it")
    tab.live()
    field = tab.page.get_by_label("Key with the scope admin")
    for attempt, fault in ((reading, "no scope admin"), ("pm_000000000000_wrong", "not known")):
        field.fill(attempt)
        press(tab, "Unlock")
        tab.page.locator(f"#operator-key-fault:has-text('{fault}')").wait_for()
        assert not tab.page.locator("#controls").is_visible()
    field.fill(operating)
    press(tab, "Unlock")
    tab.page.locator("#controls").wait_for()
    press(tab, "Freeze learning…")
    confirm(tab, "Freeze learning", "a drill")
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {reading}"}) as http:
        act = http.get("/acts").json()["acts"][0]
    assert (act["kind"], act["by"], act["reason"]) == ("freeze", admin_key.id, "a drill")
    storage = "() => JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])"
    assert operating not in tab.page.evaluate(storage) + tab.page.content()
    tab.page.reload()
    field.wait_for()  # the key was in the memory of the tab only
    assert not tab.page.locator("#controls").is_visible()

"""The page of a city of purchases, in a real browser: units sold and money where others have rewards."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.dashboard.conftest import Visit
from tests.running import CONTEXT, CityProcess


@pytest.mark.parametrize(("cost", "word"), [(0.0, "Revenue"), (1.5, "Margin")])
def test_the_page_says_what_was_sold(
    visit: Callable[..., Visit], tmp_path: Path, cost: float, word: str
) -> None:
    city = CityProcess(tmp_path, f"sqlite:///{tmp_path}/city.db", reward={"kind": "purchase", "cost": cost})
    with httpx.Client(base_url=city.url) as http:
        decision = http.post("/price", json=CONTEXT).json()
        http.post("/feedback", json={"decision_id": decision["decision_id"], "sold": 1}).raise_for_status()
    tab = visit(f"{city.url}/#live").live()
    tab.page.locator(f"[data-number=sold-{decision['arm']}]:text-is('1')").wait_for()
    assert set(tab.page.locator("[data-reward]").all_inner_texts()) == {word}
    assert f"Mean {word.lower()}" in tab.says("#arms")
    assert tab.says("#latest-rows .reward") == f"{decision['price'] - cost:.3f} (1 sold)"
    tab.page.get_by_role("link", name=decision["decision_id"]).click()
    tab.page.locator("#facts dt:text-is('Sold')").wait_for()
    assert f"1, worth {decision['price'] - cost:.3f}" in tab.says("#facts")
    assert tab.complaints == []
    city.stop()

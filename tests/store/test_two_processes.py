"""Two real cities on one SQLite file, because somebody deleted the lock file: never both acknowledge."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running import CONTEXT, CityProcess

POLICIES = ["netpool", "disjoint"]  # a city with the latter has written nothing until its first price


def price(city: CityProcess, decision_id: str) -> httpx.Response:
    return httpx.post(f"{city.url}/price", json=CONTEXT | {"decision_id": decision_id}, timeout=20)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_city_is_refused_while_another_has_the_file_open_though_the_lock_file_is_gone(
    tmp_path: Path, policy: str
) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    sections: dict[str, Any] = {"policy": {"name": policy}, "database": {"lock_wait_seconds": 0}}
    CityProcess(tmp_path / "zeroth", url, **sections).stop()
    first = CityProcess(tmp_path / "first", url, **sections)
    (tmp_path / "city.db.lock").unlink()
    with pytest.raises(RuntimeError, match="another process owns"):
        CityProcess(tmp_path / "second", url, **sections)
    for id_ in ("a", "b"):
        answer = price(first, id_)
        assert answer.status_code == 503, "the first city does not know whether it is alone"
        assert "the lock file" in answer.json()["detail"]
    with pytest.raises(RuntimeError, match="another process owns"):
        CityProcess(tmp_path / "second", url, **sections)
    first.stop()
    second = CityProcess(tmp_path / "second", url, **sections)
    assert price(second, "c").status_code == 200
    assert second.stop() == 0


def test_what_was_acknowledged_before_the_lock_file_went_is_there_for_the_next_city(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    first = CityProcess(tmp_path / "first", url)
    arms = {id_: price(first, id_).json()["arm"] for id_ in ("a", "b")}
    (tmp_path / "city.db.lock").unlink()
    assert price(first, "c").status_code == 503
    first.kill()
    second = CityProcess(tmp_path / "second", url)
    assert {id_: price(second, id_).json()["arm"] for id_ in arms} == arms
    assert second.stop() == 0

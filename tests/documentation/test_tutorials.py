"""The tutorials' commands, in their order, as a reader pastes them."""

import re
from pathlib import Path

import pytest

from tests.pasting import ROOT, pasted, shell_blocks

pytestmark = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")


def tutorial(name: str) -> list[str]:
    return shell_blocks((ROOT / f"docs/tutorials/{name}.md").read_text())


def test_a_first_city_learns_from_a_file_and_prices(tmp_path: Path) -> None:
    printed = pasted(tutorial("first-city"), tmp_path, ["8001"])
    assert '"learned":true,"version":2001' in printed
    assert re.search(r'"price":10\.0[^}]*"limited_by":\[\{"rule": "pin"', printed)


@pytest.mark.slow
def test_three_cities_hear_each_other_and_one_comes_back(tmp_path: Path) -> None:
    printed = pasted(tutorial("mesh-of-three"), tmp_path, ["8001", "8002", "8003"])
    assert printed.count('"status":"ready"') == 4
    assert '"origin": "porto"' in printed
    assert '"origin": "faro"' in printed
    assert '"city":"lisbon"' in printed
    assert "left; " in printed

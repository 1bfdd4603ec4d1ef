"""What a city says of its mesh when it starts, and how its key is printed for the others."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pricemesh.cli import app
from pricemesh.errors import PricemeshError
from pricemesh.serving.server import run
from tests.gossip.over_http import SECRETS, Start
from tests.running import settings_for


@pytest.mark.parametrize(
    ("gossip", "lines"),
    [
        ({}, 0),
        ({"secrets": SECRETS}, 1),
        ({"secrets": SECRETS, "cities": ["porto"]}, 0),
        ({"secrets": SECRETS, "cities": {"porto": "00" * 32}}, 0),
    ],
)
def test_a_secret_without_names_of_cities_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gossip: dict[str, object], lines: int
) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/nowhere/lisbon.db", gossip=gossip)
    with pytest.raises(PricemeshError):  # after the warnings: there is no such folder
        run(settings, "127.0.0.1", 0)
    warnings = [record for record in caplog.records if "can invent cities" in record.getMessage()]
    assert len(warnings) == lines


def test_the_key_of_a_running_city_is_printed_as_gossip_cities_takes_it(start_cities: Start) -> None:
    (faro,) = start_cities("faro")
    printed = CliRunner().invoke(app, ["keys", "city", faro.url]).stdout.strip()
    assert printed == f"faro={faro.app.gossip.publisher.seal.key.hex()}"
    (porto,) = start_cities("porto", gossip={"peers": [faro.url], "cities": printed})
    assert porto.app.gossip.node.named_keys == {"faro": faro.app.gossip.publisher.seal.key}

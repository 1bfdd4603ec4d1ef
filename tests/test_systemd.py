"""The unit for systemd: what it starts exists, what it promises holds, and systemd reads it."""

import re
import subprocess
from pathlib import Path

import pytest

from documentation.commands import command_tree, options_of
from pricemesh.city.configuration import PREFIX
from pricemesh.city.settings import Settings
from tests.systemd import ANALYZE

FOLDER = Path(__file__).parents[1] / "deploy/systemd"
UNIT = (FOLDER / "pricemesh@.service").read_text()
MAX_EXPOSURE = 20  # tenths, of 100; systemd-analyze calls 2 "OK", and an ordinary service has 9 and more


def values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


def test_the_unit_starts_a_command_that_exists_with_options_that_exist() -> None:
    (start,) = values("ExecStart")
    program, command, *words = start.split()
    assert program == "/opt/pricemesh/bin/pricemesh"
    options = {word for word in words if word.startswith("--")}
    assert options
    assert options <= options_of(command_tree()[command])


def test_the_unit_can_write_to_its_own_folder_only_and_gains_no_privilege() -> None:
    assert values("ProtectSystem") == ["strict"]
    assert values("ReadWritePaths") == []
    assert values("StateDirectory") == ["pricemesh/%i"]
    assert values("WorkingDirectory") == ["%S/pricemesh/%i"]
    assert values("CapabilityBoundingSet") == [""]
    for key in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome"):
        assert values(key) == ["yes"], key


def test_a_stop_waits_longer_than_a_city_takes_by_default() -> None:
    drain_seconds = Settings.model_fields["server"].default.drain_seconds
    assert int(values("TimeoutStopSec")[0]) > 10 * drain_seconds
    assert values("ExecReload") == ["/bin/kill -HUP $MAINPID"]


def test_the_example_of_an_environment_names_settings_and_holds_no_secret() -> None:
    lines = (FOLDER / "city.env.example").read_text().splitlines()
    named = dict(re.findall(r"^#?(PRICEMESH_\w+)=(.*)$", "\n".join(lines), re.MULTILINE))
    known = {
        f"{PREFIX}{section}_{key}".upper()
        for section, field in Settings.model_fields.items()
        for key in getattr(field.annotation, "model_fields", ())
    }
    assert named
    assert set(named) <= known
    assert named["PRICEMESH_GOSSIP_SECRETS"] == ""
    assert set(values("EnvironmentFile")) == {"-/etc/pricemesh/%i.env"}


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze")
def test_systemd_reads_the_unit_without_a_complaint_and_finds_it_closed(tmp_path: Path) -> None:
    assert ANALYZE is not None
    unit = tmp_path / "pricemesh@.service"
    unit.write_text(UNIT.replace("/opt/pricemesh/bin/pricemesh", "/bin/true"))  # which exists here
    verified = subprocess.run([ANALYZE, "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    options = ["--offline=true", f"--threshold={MAX_EXPOSURE}"]
    security = subprocess.run(
        [ANALYZE, "security", *options, unit], capture_output=True, text=True, check=False
    )
    assert security.returncode == 0, security.stdout


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze")
def test_systemd_would_complain_of_a_misspelled_option(tmp_path: Path) -> None:
    assert ANALYZE is not None
    unit = tmp_path / "pricemesh@.service"
    wrong = UNIT.replace("/opt/pricemesh/bin/pricemesh", "/bin/true").replace("ProtectHome=", "ProtectHouse=")
    unit.write_text(wrong)
    verified = subprocess.run([ANALYZE, "verify", unit], capture_output=True, text=True, check=False)
    assert "ProtectHouse" in verified.stderr

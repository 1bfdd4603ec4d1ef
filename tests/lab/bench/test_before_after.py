"""Another checkout against this one: where it is found, and the ratios by hand."""

import sys
from pathlib import Path

import pytest

from benchmarks.before_after import CALLS, find_side, main, parse, table
from pricemesh.lab.bench.load import Load


def checkout(folder: Path, package: str) -> Path:
    (folder / package).mkdir(parents=True)
    return folder


def test_the_package_of_a_checkout_is_found_in_its_root_or_in_its_source_folder(tmp_path: Path) -> None:
    flat = find_side("old", checkout(tmp_path / "flat", "service"), None, "service")
    assert (flat.source_root, flat.python) == (tmp_path / "flat", Path(sys.executable))
    nested = find_side("old", checkout(tmp_path / "nested", "service/pricemesh"), None, "pricemesh")
    assert nested.source_root == tmp_path / "nested" / "service"
    with pytest.raises(SystemExit, match="--old-module"):
        find_side("old", tmp_path / "flat", None, "pricemesh")


def test_a_checkout_runs_with_its_own_interpreter_unless_another_is_given(tmp_path: Path) -> None:
    tree = checkout(tmp_path, "service")
    own = tree / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_side("old", tree, None, "service").python == own
    assert find_side("old", tree, Path("/other/python"), "service").python == Path("/other/python")


def test_the_table_has_new_over_old_round_by_round() -> None:
    def load(rate: float, cpu_seconds: float) -> Load:
        return Load(rate, 1000, 0.001, 0.002, cpu_seconds)

    loads = {("old", call): [load(100.0, 40e-6), load(200.0, 20e-6)] for call in CALLS}
    loads |= {("new", call): [load(150.0, 20e-6), load(500.0, 20e-6)] for call in CALLS}
    rows = list(zip(*(column.cells for column in table(loads, "title").columns), strict=True))
    assert rows[0] == (
        *("/price", "150/s", "325/s", "2.00", "1.50–2.50"),
        *("30 µs", "20 µs", "0.75", "0.50–1.00"),
    )
    assert rows[2][:3] == ("/price/batch of 100, decisions", "15,000/s", "32,500/s")


def test_equal_log_options_and_defaults_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["tree"]).log_level == "warning"
    assert parse(["tree", "--defaults"]).defaults
    with pytest.raises(SystemExit):
        main(["tree", "--defaults", "--log-level", "info"])
    assert "not allowed with" in capsys.readouterr().err

"""What a release is made of: pinned inputs, and archives with the right files, the same at every build."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=;~! ]", name)[0]).lower()


def test_constraints_are_names_and_versions_and_nothing_else() -> None:
    assert [line for line in CONSTRAINTS if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []
    names = list(map(normal, CONSTRAINTS))
    assert len(set(names)) == len(names)
    assert sorted(CONSTRAINTS, key=str.lower) == CONSTRAINTS


def test_every_package_that_the_project_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["project"]["optional-dependencies"].values()
    named = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    named += [name for group in groups for name in group]
    assert {normal(name) for name in named} <= set(map(normal, CONSTRAINTS))


def test_archives_are_equal_at_every_build_and_hold_the_package_alone(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        built = subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / folder), str(ROOT)],
            env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stdout + built.stderr
    files = {path.name: path for path in (tmp_path / "first").iterdir()}
    assert len(files) == 2
    for name, path in files.items():
        assert path.read_bytes() == (tmp_path / "second" / name).read_bytes(), name
    (wheel,) = (path for name, path in files.items() if name.endswith(".whl"))
    (source,) = (path for name, path in files.items() if name.endswith(".tar.gz"))
    inside = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in inside if ".dist-info/" not in name} == {"pricemesh"}
    assert "pricemesh/migrations/env.py" in inside
    assert any(name.startswith("pricemesh/dashboard/page/") for name in inside)
    with tarfile.open(source) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    assert {"service", "migrations", "constraints.txt", "LICENSE"} <= names
    assert not names & {"docs", "tests", "benchmarks"}

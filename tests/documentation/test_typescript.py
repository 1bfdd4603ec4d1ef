"""The contract in docs/openapi.json is sound: a TypeScript client made from it compiles and works."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricemesh.city.configuration import settings_from
from tests.documentation.documents import ROOT
from tests.node import NODE
from tests.running import RunningCity

SOURCE = Path(__file__).parent / "typescript"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NODE is None, reason="no node")]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's source, its packages, and the types of the contract."""
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    installed = run(folder, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
    assert installed.returncode == 0, installed.stderr
    # A field with a default may be left out of a request.
    options = ("--default-non-nullable", "false", "--output", "api.ts")
    made = run(folder, "npx", "openapi-typescript", str(ROOT / "docs/openapi.json"), *options)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def lisbon(tmp_path: Path) -> Iterator[RunningCity]:
    values = tomllib.loads((ROOT / "docs/lisbon.toml").read_text())
    city = RunningCity(settings_from(values | {"database": {"url": f"sqlite:///{tmp_path}/lisbon.db"}}))
    yield city
    city.stop()


def test_a_typescript_client_prices_and_gives_feedback(project: Path, lisbon: RunningCity) -> None:
    compiled = run(project, "npx", "tsc")
    assert compiled.returncode == 0, compiled.stdout
    result = run(project, "node", "out/client.js", lisbon.url)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer.pop("price") in (9.0, 10.0, 11.0, 12.0)  # the floor is 8.5
    assert answer == {"learned": True, "sold": 1, "problem": "urn:pricemesh:problem:unknown-decision"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("sold: 1", "sold: true"), ("rain: 0.5", "rainfall: 0.5"), ("?.learned", "?.learnt")],
)
def test_a_caller_that_departs_from_the_contract_does_not_compile(
    project: Path, right: str, wrong: str
) -> None:
    source = (SOURCE / "client.ts").read_text()
    assert right in source
    (project / "wrong.ts").write_text(source.replace(right, wrong))
    configuration = (SOURCE / "tsconfig.json").read_text().replace("client.ts", "wrong.ts")
    (project / "wrong.json").write_text(configuration)
    assert run(project, "npx", "tsc", "--project", "wrong.json").returncode != 0

"""The stations of a price and of feedback once more, in instructions that callgrind counts: the same on a
busy machine as on a quiet one. What the kernel does is not counted.

`python -m pricemesh.lab.bench.instructions FOLDER ROUNDS` is what runs under callgrind.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pricemesh.errors import MissingExtra
from pricemesh.lab.bench.load import LoadFailed
from pricemesh.lab.bench.ratios import Say, Suite, ratio
from pricemesh.lab.bench.stations import GROUP, Station, opened, stations_of, taken_apart

WARMING = 2  # dumps that nobody reads: the first take longer
LEAST_SHARE = 0.01  # of a library that is named
NOTHING = "nothing"  # what asking for the counts costs itself
LIBRARIES = {
    "libsqlite3": "SQLite",
    "_sqlite3": "SQLite's driver",
    "/msgspec/": "msgspec",
    "/pydantic_core/": "pydantic",
    "openblas": "BLAS",
    "/numpy/": "numpy",
    "/site-packages/": "other packages",
    "/libpython": "the interpreter",
    "/bin/python": "the interpreter",
    "/lib-dynload/": "the standard library",
    "/libc": "the C library",
}

Counts = Counter[str]  # instructions by library


def instructions(*, quick: bool, say: Say) -> Suite:
    suite = Suite("instructions", f"Instructions of one call by station and by library, groups of {GROUP}")
    if not shutil.which("valgrind"):
        raise MissingExtra("valgrind counts the instructions and is not installed: apt-get install valgrind")
    rounds = 5 if quick else 20
    say("a city under callgrind, which takes a minute")
    with tempfile.TemporaryDirectory(prefix="pricemesh-bench-") as folder:
        counted = _counted(Path(folder), rounds)
    nothing = counted.pop((NOTHING, NOTHING))
    for call in ("/price", "/feedback"):
        stations = {name: one - nothing for (of, name), one in counted.items() if of == call}
        calls = rounds * GROUP
        by_library = {
            library: taken_apart(call, {name: [one[library] / calls] for name, one in stations.items()})
            for library in sorted({library for one in stations.values() for library in one})
        }
        _say(suite, call, by_library)
    return suite


def _say(suite: Suite, call: str, by_library: dict[str, dict[str, Sequence[float]]]) -> None:
    libraries = {name: sum(one[0] for one in stations.values()) for name, stations in by_library.items()}
    stations = next(iter(by_library.values()))
    by_station = {name: sum(one[name][0] for one in by_library.values()) for name in stations}
    total = sum(by_station.values())

    def say(what: str, count: float) -> None:
        said = f"{count:,.0f} instructions"
        suite.ratios.append(ratio(f"{call}: {what}", [count], "all stations", [total], measured=said))

    for name, count in by_station.items():
        say(name, count)
    for name, count in sorted(libraries.items(), key=lambda pair: -pair[1]):
        if count > LEAST_SHARE * total:
            say(f"in {name}", count)


def _counted(folder: Path, rounds: int) -> dict[tuple[str, str], Counts]:
    """By call and station."""
    out = folder / "count"
    words = [sys.executable, "-m", "pricemesh.lab.bench.instructions", str(folder), str(rounds)]
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )
    stations = [tuple(line.split("\t")) for line in run.stdout.splitlines()]
    if run.returncode or not stations:
        raise LoadFailed(f"callgrind: {run.stderr[-2000:]}")
    return {
        (call, name): self_costs((folder / f"count.{WARMING + 2 * number}").read_text())
        for number, (call, name) in enumerate(stations, 1)
    }


def self_costs(dump: str) -> Counts:
    """Instructions of each library itself, from a dump of callgrind's. Costs of calls come on the line after
    `calls=` and are counted where they arise."""
    names: dict[str, str] = {}
    counts: Counts = Counter()
    library, after_call = "", False
    for line in dump.splitlines():
        if found := re.match(r"(c?)ob=\((\d+)\)(?: (.*))?", line):
            called, number, path = found.groups()
            if path is not None:
                names[number] = _library(path)
            if not called:
                library = names[number]
        elif line.startswith("calls="):
            after_call = True
        elif line and line[0] in "+-*0123456789":
            if not after_call:
                counts[library] += int(line.split()[1])
            after_call = False
    return counts


def _library(path: str) -> str:
    for part, name in LIBRARIES.items():
        if part in path:
            return name
    return "the rest"


def main(folder: Path, rounds: int) -> None:
    with opened(folder) as gate:
        nothing: dict[str, Station] = {NOTHING: lambda: None}
        everything = {NOTHING: nothing, **stations_of(gate)}
        for _ in range(WARMING):
            dump_counts()
        for call, stations in everything.items():
            for name, run in stations.items():
                run()
                dump_counts()
                for _ in range(rounds):
                    run()
                dump_counts()
                print(call, name, sep="\t", flush=True)


def dump_counts() -> None:
    """Into the next file, and begin again from zero."""
    subprocess.run(["callgrind_control", "--dump", str(os.getpid())], capture_output=True, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

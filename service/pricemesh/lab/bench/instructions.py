"""The stations of a price and of a feedback, measured in instructions by callgrind: the figures do not
depend on the load of the machine. The kernel's instructions are not counted.

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
from pricemesh.lab.bench.stations import GROUP, Station, open_city, split_costs, stations_of

WARM_UP_DUMPS = 2  # not read: the first dumps cost more
MIN_SHARE = 0.01  # of all instructions: a library below it is not listed
NOTHING = "nothing"  # an empty station: the cost of a dump itself
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
        counts = _count_instructions(Path(folder), rounds)
    nothing = counts.pop((NOTHING, NOTHING))
    for call in ("/price", "/feedback"):
        stations = {name: one - nothing for (of, name), one in counts.items() if of == call}
        calls = rounds * GROUP
        by_library = {
            library: split_costs(call, {name: [one[library] / calls] for name, one in stations.items()})
            for library in sorted({library for one in stations.values() for library in one})
        }
        _add_ratios(suite, call, by_library)
    return suite


def _add_ratios(suite: Suite, call: str, by_library: dict[str, dict[str, Sequence[float]]]) -> None:
    libraries = {name: sum(one[0] for one in stations.values()) for name, stations in by_library.items()}
    stations = next(iter(by_library.values()))
    by_station = {name: sum(one[name][0] for one in by_library.values()) for name in stations}
    total = sum(by_station.values())

    def add(what: str, count: float) -> None:
        figure = f"{count:,.0f} instructions"
        suite.ratios.append(ratio(f"{call}: {what}", [count], "all stations", [total], figure=figure))

    for name, count in by_station.items():
        add(name, count)
    for name, count in sorted(libraries.items(), key=lambda pair: -pair[1]):
        if count > MIN_SHARE * total:
            add(f"in {name}", count)


def _count_instructions(folder: Path, rounds: int) -> dict[tuple[str, str], Counts]:
    """Instructions by library, for each call and station."""
    out = folder / "count"
    command = [sys.executable, "-m", "pricemesh.lab.bench.instructions", str(folder), str(rounds)]
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )
    stations = [tuple(line.split("\t")) for line in run.stdout.splitlines()]
    if run.returncode or not stations:
        raise LoadFailed(f"callgrind: {run.stderr[-2000:]}")
    return {
        (call, name): self_costs((folder / f"count.{WARM_UP_DUMPS + 2 * number}").read_text())
        for number, (call, name) in enumerate(stations, 1)
    }


def self_costs(dump: str) -> Counts:
    """Instructions that each library executed itself, from a dump of callgrind. The line after `calls=` is
    the cost of the callee, which the dump lists under the callee as well, so it is skipped."""
    names: dict[str, str] = {}
    counts: Counts = Counter()
    library, after_call = "", False
    for line in dump.splitlines():
        if match := re.match(r"(c?)ob=\((\d+)\)(?: (.*))?", line):
            is_callee, number, path = match.groups()
            if path is not None:
                names[number] = _library(path)
            if not is_callee:
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
    with open_city(folder) as city:
        nothing: dict[str, Station] = {NOTHING: lambda: None}
        everything = {NOTHING: nothing, **stations_of(city)}
        for _ in range(WARM_UP_DUMPS):
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
    """Write the counts to the next file and reset them."""
    subprocess.run(["callgrind_control", "--dump", str(os.getpid())], capture_output=True, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

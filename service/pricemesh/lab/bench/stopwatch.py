"""Times contenders in turn within one run, so that noise of the machine affects all of them alike."""

import gc
from collections.abc import Callable, Mapping
from time import perf_counter

Seconds = dict[
    str, list[float]
]  # of one call; a value for each repetition, in the same order for all contenders


def race(
    contenders: Mapping[str, Callable[[], object]], *, repetitions: int = 15, slice_seconds: float = 0.01
) -> Seconds:
    """Time each contender for about `slice_seconds`, in turn, `repetitions` times. Each first runs untimed
    for half as long, to warm caches that the previous contender used."""
    seconds: Seconds = {name: [] for name in contenders}
    calls = {}
    for name, run in contenders.items():
        run()
        started = perf_counter()
        run()
        calls[name] = max(1, round(slice_seconds / max(1e-7, perf_counter() - started)))
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, run in contenders.items():
                count = calls[name]
                for _ in range(1 + count // 2):
                    run()
                started = perf_counter()
                for _ in range(count):
                    run()
                seconds[name].append((perf_counter() - started) / count)
    finally:
        gc.enable()
    return seconds

"""A process that prunes a city, to be killed in the middle: `python -m tests.city.prune_process ...`.

It waits for a line on standard input. Given a number, it kills itself after so many groups of lessons were
learned; given `end`, once the prune has returned.
"""

import os
import signal
import sys
from pathlib import Path

from pricemesh.city.pruning import Pruning
from pricemesh.city.settings import Settings
from tests.city.old_rows import DAY, clock_at


def main(settings_file: str, day: float, older_than_days: float) -> None:
    settings = Settings.model_validate_json(Path(settings_file).read_bytes())
    pruning = Pruning(settings, clock_at(day), older_than_days * DAY)
    print("ready", flush=True)
    moment = sys.stdin.readline().strip()
    groups = 0

    def report(_done: int, _total: int) -> None:
        nonlocal groups
        groups += 1
        if str(groups) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    pruning.carry_out(report)
    print(groups, flush=True)
    if moment == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    pruning.close()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))

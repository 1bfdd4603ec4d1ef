"""What checks units: systemd-analyze. No systemd needs to run."""

import shutil

ANALYZE = shutil.which("systemd-analyze")
HOW_TO_GET_SYSTEMD = (
    "There is no systemd-analyze: the unit in deploy/systemd was read but not verified. "
    "apt-get install systemd"
)

"""The Chromium of this machine, started without background network traffic."""

import shutil
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOW_TO_GET_IT = "no Chromium on this machine, so the page is NOT tested: apt-get install chromium"


def launch_options() -> dict[str, Any]:
    return {
        "executable_path": CHROMIUM,
        "args": ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
    }

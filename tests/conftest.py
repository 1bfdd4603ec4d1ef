"""What a run says at its end."""

from typing import Any

from tests.dashboard.browser import CHROMIUM, HOW_TO_GET_IT


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if CHROMIUM is None:
        terminalreporter.write_line(HOW_TO_GET_IT, yellow=True, bold=True)

"""The code of the version before the newest migration, out of the history of the repository."""

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = "migrations/versions"
WHAT_REPLICAS_NEED = "service/pricemesh/store/shared_database.py"
HOW_TO_GET_THE_HISTORY = (
    "There is no history of the repository: the version before the newest migration was not run beside this "
    "one. Use git clone, not an archive or a shallow clone"
)


@cache
def previous_commit() -> str | None:
    """The newest commit without the newest migration that knows replicas; None where there is no history."""
    newest = max(path.name for path in (ROOT / VERSIONS).glob("*.py"))
    changes = _git("log", "--format=%H^1", "--", f"{VERSIONS}/{newest}") or b""
    candidates = changes.decode().split()[::-1] or ["HEAD"]  # of a migration that is not committed yet
    exists = (_git("cat-file", "-e", f"{commit}:{WHAT_REPLICAS_NEED}") is not None for commit in candidates)
    return next((commit for commit, is_there in zip(candidates, exists, strict=True) if is_there), None)


def extract(commit: str, folder: Path) -> str:
    """Service and migrations of a commit; returns its newest revision."""
    archive = _git("archive", commit, "service", "migrations")
    assert archive is not None
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return max(path.name for path in (folder / VERSIONS).glob("*.py")).partition("_")[0]


def _git(*arguments: str) -> bytes | None:
    """What git prints; None where it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None

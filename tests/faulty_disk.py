"""A disk that fails as told, before a commit or after it."""

from pricemesh.runtime import Disk


class FaultyDisk(Disk):
    def __init__(self) -> None:
        self.before: Exception | None = None
        self.after: Exception | None = None

    def before_commit(self) -> None:
        if self.before is not None:
            raise self.before

    def after_commit(self) -> None:
        if self.after is not None:
            raise self.after

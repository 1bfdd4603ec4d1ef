"""What a connection knows of a request: when it may start, and when it has its answer."""

from typing import Protocol


class Turn(Protocol):
    """A request whose answer is due when those before it have theirs."""

    started: bool
    keep_alive: bool
    early_chunks: list[bytes]  # of a body that arrived before the turn started
    complete: bool  # the body has arrived

    @property
    def reads_at_once(self) -> bool:
        """It sees its headers and its body as they are fed, and not in a task that runs later."""
        ...

    @property
    def answered(self) -> bool: ...

    @property
    def answering(self) -> bool:
        """Part of the answer is written."""
        ...

    def start(self) -> None: ...

    def feed(self, chunk: bytes) -> None: ...

    def end(self) -> None: ...

    def abandon(self) -> None: ...

"""How a defect is planted: functions of the service are replaced for the length of a `with` block."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

Original = Callable[..., Any]


class Patch(NamedTuple):
    """`replacement` takes what it replaces as its first argument."""

    owner: Any
    name: str
    replacement: Callable[..., Any]


class Defect(NamedTuple):
    description: str
    patches: tuple[Patch, ...]


@contextmanager
def planted(defect: Defect) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in defect.patches:
            stack.enter_context(_patched(patch))
        yield


@contextmanager
def _patched(patch: Patch) -> Iterator[None]:
    original = vars(patch.owner)[patch.name]
    function = original.fget if isinstance(original, property) else original

    def replacement(*arguments: Any, **options: Any) -> Any:
        return patch.replacement(function, *arguments, **options)

    setattr(patch.owner, patch.name, property(replacement) if isinstance(original, property) else replacement)
    try:
        yield
    finally:
        setattr(patch.owner, patch.name, original)

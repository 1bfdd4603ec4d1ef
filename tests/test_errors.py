"""The tree of errors, and the names by which programs know them."""

import re
from collections.abc import Iterator

from pricemesh import errors
from pricemesh.errors import PricemeshError
from pricemesh.http.problems import STATUSES

# Part of the HTTP contract: what stands after urn:pricemesh:problem: in an answer.
KINDS = {
    "unreadable-body": 422,
    "invalid-context": 422,
    "body-too-large": 413,
    "no-key": 401,
    "signed-too-early": 425,
    "other-receiver": 421,
    "not-allowed": 403,
    "wrong-host": 403,
    "too-fast": 429,
    "unknown-decision": 404,
    "other-reward": 409,
    "too-late": 410,
    "impossible-pin": 409,
    "other-mesh": 409,
    "other-terms": 409,
    "missing-extra": 501,
    "unknown-city": 404,
    "unknown-retraction": 404,
    "nothing-to-retract": 404,
    "wrong-method": 405,
    "not-a-demo": 403,
    "too-many-readers": 503,
    "storage-unavailable": 503,
    "overloaded": 503,
    "in-doubt": 503,
}


def descendants(above: type[PricemeshError]) -> Iterator[type[PricemeshError]]:
    for error in above.__subclasses__():
        if error.__module__ == errors.__name__:
            yield error
            yield from descendants(error)


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    depths = {PricemeshError: 0}
    for error in descendants(PricemeshError):
        depths[error] = depths[error.__mro__[1]] + 1  # type: ignore[index]
    lines = (errors.__doc__ or "").splitlines()
    drawn = [re.match(r"([│ ]*)[├└]── (\w+)", line) for line in lines]
    tree = {match[2]: len(match[1]) // 4 + 1 for match in drawn if match}
    assert tree | {"PricemeshError": 0} == {error.__name__: depth for error, depth in depths.items()}


def test_the_kind_and_status_of_a_problem_stay_as_they_are() -> None:
    assert {error.kind: status for error, status in STATUSES.items()} == KINDS

"""Signatures of requests and answers between cities."""

from itertools import pairwise
from secrets import token_bytes

import pytest

from pricemesh.city.gossip_secrets import new_secret, parse_secret
from pricemesh.errors import InvalidParameter, Unauthenticated
from pricemesh.gossip.signing import Keyring

OLD, NEW = "k1:" + "o" * 40, "k2:" + "n" * 40
NOW = 1_700_000_000.0


def keyring(secrets: list[str]) -> Keyring:
    return Keyring(secrets, token_bytes)


def test_a_request_passes_once_and_only_as_it_was_signed() -> None:
    here, there = keyring([OLD]), keyring([OLD])
    signature = here.sign(b"body", NOW)
    for changed in (b"bodY", b""):
        with pytest.raises(Unauthenticated, match="is not a signature"):
            there.verify(signature, changed, NOW)
    there.verify(signature, b"body", NOW + 1)
    with pytest.raises(Unauthenticated, match="received before"):
        there.verify(signature, b"body", NOW + 2)


@pytest.mark.parametrize("late", [-61, 61, 3600])
def test_clocks_may_differ_by_a_minute(late: float) -> None:
    signature = keyring([OLD]).sign(b"", NOW)
    with pytest.raises(Unauthenticated, match="clocks"):
        keyring([OLD]).verify(signature, b"", NOW + late)
    keyring([OLD]).verify(signature, b"", NOW + 59 * (1 if late > 0 else -1))


def test_secrets_change_one_city_at_a_time_without_a_gap() -> None:
    """Old alone; both, the old one signs; both, the new one signs; new alone: neighbours always agree."""
    steps = [keyring(secrets) for secrets in ([OLD], [OLD, NEW], [NEW, OLD], [NEW])]
    for before, after in pairwise(steps):
        for one, other in ((before, after), (after, before)):
            signature = one.sign(b"x", NOW)
            other.verify(signature, b"x", NOW)
            one.verify_reply(signature, other.sign_reply(signature, b"y"), b"y")
    with pytest.raises(Unauthenticated):
        steps[3].verify(steps[0].sign(b"x", NOW), b"x", NOW)


@pytest.mark.parametrize(
    "signature", ["", "k1", "k1.1.2.3", "k9.1700000000.n.m", "k1..n.m", "é.1.2.3", "..."]
)
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(Unauthenticated):
        keyring([OLD]).verify(signature, b"", NOW)


def test_an_answer_belongs_to_its_question() -> None:
    ring = keyring([OLD])
    first, second = ring.sign(b"x", NOW), ring.sign(b"x", NOW)
    with pytest.raises(Unauthenticated, match="answer"):
        ring.verify_reply(second, ring.sign_reply(first, b"y"), b"y")
    with pytest.raises(Unauthenticated, match="answer"):
        ring.verify_reply(first, ring.sign_reply(first, b"y"), b"z")


def test_a_secret_is_long_and_has_a_name() -> None:
    assert parse_secret(new_secret("k7"))[0] == "k7"
    for wrong in ("", "k1", "k1:short", ":" + "x" * 40, "k 1:" + "x" * 40, "k.1:" + "x" * 40):
        with pytest.raises(InvalidParameter, match="id:secret"):
            parse_secret(wrong)

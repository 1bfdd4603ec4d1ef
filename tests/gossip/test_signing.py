"""Signatures of requests and answers between cities."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from secrets import token_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricemesh.city.gossip_secrets import new_secret, parse_secret
from pricemesh.errors import (
    IncompatibleMesh,
    InvalidParameter,
    OtherReceiver,
    SignedTooEarly,
    TooFast,
    Unauthenticated,
)
from pricemesh.gossip.signing import Keyring

OLD, NEW = "k1:" + "o" * 40, "k2:" + "n" * 40
NOW = 1_700_000_000.0


@dataclass
class Uptime:
    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def keyring(secrets: Sequence[str], city: str = "lisbon", uptime: Uptime | None = None) -> Keyring:
    """Of a city that has run for long, unless `uptime` is given."""
    monotonic = uptime or Uptime(0.0)
    ring = Keyring(city, secrets, token_bytes, monotonic)
    if uptime is None:
        monotonic.seconds += 1000.0
    return ring


def verify(ring: Keyring, signature: str, body: bytes, now: float) -> None:
    """As the server does."""
    claims = ring.check(signature, now)
    if not claims.covers(body):
        raise Unauthenticated("is not a signature of this body")
    ring.remember(claims, is_known=True)


def test_a_request_passes_once_and_only_as_it_was_signed() -> None:
    here, there = keyring([OLD]), keyring([OLD])
    signature = here.sign(b"body", NOW, "lisbon")
    for changed in (b"bodY", b""):
        with pytest.raises(Unauthenticated, match="is not a signature"):
            verify(there, signature, changed, NOW)
    verify(there, signature, b"body", NOW + 1)
    with pytest.raises(Unauthenticated, match="received before"):
        verify(there, signature, b"body", NOW + 2)


def test_a_message_signed_for_one_city_is_refused_by_another() -> None:
    signature = keyring([OLD], "faro").sign(b"body", NOW, "porto.2")
    with pytest.raises(OtherReceiver, match=r"signed for 'porto\.2' and this city is lisbon"):
        keyring([OLD], "lisbon").check(signature, NOW)
    assert keyring([OLD], "porto.2").check(signature, NOW).receiver == "porto.2"
    with pytest.raises(Unauthenticated, match="is not a signature"):
        keyring([OLD], "lisbon").check(signature.replace("porto.2", "lisbon"), NOW)


def test_a_signature_of_an_older_format_is_told_to_upgrade() -> None:
    with pytest.raises(IncompatibleMesh, match="upgrade the sender"):
        keyring([OLD]).check(f"k1.{int(NOW)}.abcdefghijkl.{'m' * 43}", NOW)


def test_what_was_signed_before_the_start_is_refused_until_clocks_have_caught_up() -> None:
    """A restart forgets the nonces: what its predecessor took must not pass again."""
    uptime = Uptime()
    there = keyring([OLD], uptime=uptime)
    here = keyring([OLD])
    before = here.sign(b"", NOW - 0.01, "lisbon")
    with pytest.raises(SignedTooEarly, match="signed before this city started; try again"):
        there.check(before, NOW)
    there.check(here.sign(b"", NOW, "lisbon"), NOW)  # at the very start
    for seconds in (10.0, 29.0):  # of a city whose clock is 30 s behind
        uptime.seconds = 1000.0 + seconds
        with pytest.raises(SignedTooEarly):
            there.check(here.sign(b"", NOW + seconds - 30, "lisbon"), NOW + seconds)
    uptime.seconds = 1000.0 + 30
    there.check(here.sign(b"", NOW, "lisbon"), NOW + 30)
    with pytest.raises(SignedTooEarly):
        there.check(before, NOW + 30)


def test_a_clock_that_is_set_back_after_the_start_shuts_nobody_out() -> None:
    uptime = Uptime()
    there = keyring([OLD], uptime=uptime)
    uptime.seconds += 5
    there.check(keyring([OLD]).sign(b"", NOW - 3600, "lisbon"), NOW - 3600)


def test_the_start_counts_from_when_the_predecessor_has_gone() -> None:
    uptime = Uptime()
    there = keyring([OLD], uptime=uptime)
    uptime.seconds += 20  # it waits for the lock of the database
    there.mark_start()
    with pytest.raises(SignedTooEarly):
        there.check(keyring([OLD]).sign(b"", NOW - 10, "lisbon"), NOW)


def test_names_that_are_not_known_cannot_fill_the_table_of_nonces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pricemesh.gossip.signing.MAX_NONCES", 8)
    there, here = keyring([OLD]), keyring([OLD])

    def call(*, is_known: bool) -> None:
        there.remember(there.check(here.sign(b"", NOW, "lisbon"), NOW), is_known=is_known)

    for _ in range(4):
        call(is_known=False)
    with pytest.raises(TooFast):
        call(is_known=False)
    for _ in range(4):
        call(is_known=True)
    with pytest.raises(TooFast):
        call(is_known=True)


@pytest.mark.parametrize("late", [-61, 61, 3600])
def test_clocks_may_differ_by_a_minute(late: float) -> None:
    signature = keyring([OLD]).sign(b"", NOW, "lisbon")
    with pytest.raises(Unauthenticated, match="clocks"):
        keyring([OLD]).check(signature, NOW + late)
    keyring([OLD]).check(signature, NOW + 59 * (1 if late > 0 else -1))


def test_secrets_change_one_city_at_a_time_without_a_gap() -> None:
    """Old alone; both, the old one signs; both, the new one signs; new alone: neighbours always agree."""
    steps = [keyring(secrets) for secrets in ([OLD], [OLD, NEW], [NEW, OLD], [NEW])]
    for before, after in pairwise(steps):
        for one, other in ((before, after), (after, before)):
            signature = one.sign(b"x", NOW, "lisbon")
            verify(other, signature, b"x", NOW)
            one.verify_reply(signature, other.sign_reply(signature, b"y"), b"y")
    with pytest.raises(Unauthenticated):
        steps[3].check(steps[0].sign(b"x", NOW, "lisbon"), NOW)


@pytest.mark.parametrize(
    "signature",
    ["", "k1", "k1.1.2.3", "k9.1700000000.n.m", "k1..n.m", "é.1.2.3", "...", "k1.1.2.3.é.lisbon.m", "......"],
)
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(Unauthenticated):
        keyring([OLD]).check(signature, NOW)


@given(st.text(max_size=200) | st.lists(st.text(max_size=20), max_size=9).map(".".join))
def test_any_text_is_refused_and_nothing_else_happens(signature: str) -> None:
    with pytest.raises((Unauthenticated, IncompatibleMesh)):
        keyring([OLD]).check(signature, NOW)


def test_an_answer_belongs_to_its_question() -> None:
    ring = keyring([OLD])
    first, second = ring.sign(b"x", NOW, "lisbon"), ring.sign(b"x", NOW, "lisbon")
    with pytest.raises(Unauthenticated, match="answer"):
        ring.verify_reply(second, ring.sign_reply(first, b"y"), b"y")
    with pytest.raises(Unauthenticated, match="answer"):
        ring.verify_reply(first, ring.sign_reply(first, b"y"), b"z")


def test_a_secret_is_long_and_has_a_name() -> None:
    assert parse_secret(new_secret("k7"))[0] == "k7"
    for wrong in ("", "k1", "k1:short", ":" + "x" * 40, "k 1:" + "x" * 40, "k.1:" + "x" * 40):
        with pytest.raises(InvalidParameter, match="id:secret"):
            parse_secret(wrong)

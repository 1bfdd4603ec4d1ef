"""Who is to blame for a letter that is refused, and when a mark ends."""

from typing import Any

import pytest

from pricemesh.core.summary import Summary
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.node import Node
from pricemesh.gossip.quarantine import CLEAN_EXCHANGES, LOG_AGAIN_SECONDS, Quarantine
from tests.gossip.letters import PRINT, check, letter, node

BROKEN = letter("porto", 5).wire[:-1] + b"x"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def bring(lisbon: Node, quarantine: Quarantine, *wires_and_sender: Any) -> None:
    """As the intake does with a message."""
    *wires, sender = wires_and_sender
    checked = lisbon.check_letters(wires)
    is_clean = quarantine.record(checked.refusals, sender)
    lisbon.take(checked.fresh)
    for each in checked.fresh:
        quarantine.record_letter(each.origin, sender, is_clean=is_clean)


def named(origin: str) -> bytes:
    """A letter under any name, with a seal that holds."""
    return Seal(bytes(32)).close(Summary(origin, 1, 1, PRINT, b"")).wire


def test_a_letter_under_another_key_is_a_question_about_its_origin() -> None:
    lisbon = node("lisbon", 3)
    lisbon.take([letter("porto", 5)])
    quarantine = Quarantine(lisbon, Clock())
    for lessons in (2, 9):  # older and newer than the letter of the known key
        bring(lisbon, quarantine, letter("porto", lessons, by="faro").wire, "relay")
    assert set(quarantine.marks) == {"porto"}
    mark = quarantine.marks["porto"]
    assert "/peers/porto/trust" in mark.reason
    assert (mark.via, mark.is_bringer) == ("relay", False)
    bring(lisbon, quarantine, letter("porto", 6).wire, "relay")
    assert quarantine.marks == {}


def test_a_bringer_of_damaged_letters_is_believed_again_after_some_clean_exchanges() -> None:
    lisbon = node("lisbon", 3)
    quarantine = Quarantine(lisbon, Clock())
    bring(lisbon, quarantine, BROKEN, "relay")
    for _ in range(CLEAN_EXCHANGES - 1):
        quarantine.record_clean_exchange("relay")
    assert "1 more" in quarantine.marks["relay"].ending("relay")
    bring(lisbon, quarantine, BROKEN, "relay")  # it starts anew
    for _ in range(CLEAN_EXCHANGES - 1):
        quarantine.record_clean_exchange("relay")
    bring(lisbon, quarantine, letter("porto", 5, by="faro").wire, "relay")
    assert quarantine.marks == {}


def test_a_letter_that_others_relay_does_not_excuse_who_brought_damaged_ones() -> None:
    lisbon = node("lisbon", 3)
    quarantine = Quarantine(lisbon, Clock())
    bring(lisbon, quarantine, BROKEN, "faro")
    bring(lisbon, quarantine, letter("faro", 1).wire, "relay")
    assert set(quarantine.marks) == {"faro"}
    bring(lisbon, quarantine, letter("faro", 2).wire, BROKEN, "faro")  # one good beside a damaged one
    assert set(quarantine.marks) == {"faro"}
    bring(lisbon, quarantine, letter("faro", 3).wire, "faro")
    assert quarantine.marks == {}


@pytest.mark.parametrize("origin", ["x" * 60_000, "no name", "a\n", "", "ü" * 90])
def test_no_name_is_kept_before_it_is_checked(origin: str) -> None:
    lisbon = node("lisbon", 3)
    quarantine = Quarantine(lisbon, Clock())
    bring(lisbon, quarantine, named(origin), "relay")
    assert set(quarantine.marks) == {"relay"}
    assert len(quarantine.marks["relay"].reason) < 200
    assert quarantine.marks["relay"].reason.isprintable()


def test_invented_names_push_out_each_other_and_no_city_of_the_mesh() -> None:
    lisbon = Node("lisbon", PRINT, check, max_cities=2)
    lisbon.take([letter("lisbon", 1), letter("porto", 5)])
    quarantine = Quarantine(lisbon, Clock())
    bring(lisbon, quarantine, b"junk", "porto")
    for i in range(100):
        bring(lisbon, quarantine, b"junk", f"stranger{i}")
    assert list(quarantine.marks) == ["porto", "stranger97", "stranger98", "stranger99"]


def test_the_log_repeats_a_mark_only_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock, lisbon = Clock(), node("lisbon", 3)
    quarantine = Quarantine(lisbon, clock)
    for sender, lines in (("porto", 1), ("lisbon's impostor", 2)):
        for _ in range(5):
            wire = BROKEN if sender == "porto" else letter("lisbon", 9, by="faro").wire
            bring(lisbon, quarantine, wire, sender)
        assert len(caplog.records) == lines
    clock.now += LOG_AGAIN_SECONDS
    bring(lisbon, quarantine, BROKEN, "porto")
    assert len(caplog.records) == 3


def test_a_named_key_is_known_before_the_first_letter() -> None:
    keys = {"porto": letter("porto", 1).key, "lisbon": bytes(32)}
    lisbon = Node("lisbon", PRINT, check, cities=keys, city_keys=keys)
    lisbon.take([letter("lisbon", 1)])
    (refusal,) = lisbon.check_letters([letter("porto", 9, by="faro").wire]).refusals
    assert "change it in gossip.cities" in refusal.reason
    assert refusal.is_sealed
    lisbon.restore([], {"porto": letter("faro", 1).key})  # the configuration has the last word
    assert lisbon.check_letters([letter("porto", 9, by="faro").wire]).fresh == []
    assert [each.origin for each in lisbon.check_letters([letter("porto", 2).wire]).fresh] == ["porto"]
    assert isinstance(lisbon.check_letters([letter("lisbon", 8).wire]).own, Letter)

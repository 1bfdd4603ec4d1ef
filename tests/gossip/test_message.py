"""The bytes of a gossip message: laws of reading and writing, limits, other formats."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import IncompatibleMesh, UnreadableBody
from pricemesh.gossip.bounds import LAST_VERSION
from pricemesh.gossip.difference import Difference
from pricemesh.gossip.letter import Leave, Seal
from pricemesh.gossip.message import MAX_ENTRIES, Message, state_of
from tests.gossip.letters import PRINT, letter, node

STATE = bytes(range(16))
DIFFERENCE = ("faro", 1, 7, 5, b"", bytes(8), bytes(16), bytes(64))
names = st.text("azAZ09", min_size=1, max_size=1) | st.sampled_from(("faro", "city-1.b_C", "x" * 100))
texts = st.text(max_size=8) | st.sampled_from(("http://10.0.0.1:80", "ü" * 300))
counts = st.integers(0, LAST_VERSION - 1)
digests = st.dictionaries(names, st.tuples(counts, counts), max_size=5)
differences = st.builds(
    Difference,
    names,
    counts,
    counts,
    counts,
    st.binary(max_size=8),
    st.binary(max_size=16),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=64, max_size=64),
)
optional = st.fixed_dictionaries(
    {},
    optional={
        "letters": st.lists(st.binary(max_size=8), max_size=4).map(tuple),
        "differences": st.lists(differences, max_size=3).map(tuple),
        "whole": st.lists(names, max_size=3).map(tuple),
        "address": texts,
        "discovers": st.booleans(),
        "addresses": st.lists(texts, max_size=4).map(tuple),
        "leave": st.binary(min_size=Leave.SIZE, max_size=Leave.SIZE),
    },
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    fields: dict[str, Any] = draw(optional)
    if draw(st.booleans()):
        fields |= {"fingerprint": draw(st.binary(min_size=16, max_size=16)), "digest": draw(digests)}
        fields["base"] = draw(st.just(b"") | st.binary(min_size=16, max_size=16))
    return Message(draw(names), **fields, state=draw(st.binary(min_size=16, max_size=16)))


def packed(*fields: Any) -> bytes:
    return b"PMG4" + STATE + msgspec.msgpack.encode(fields)


def read_or_refuse(data: bytes) -> None:
    """Reading either refuses, or gives a message that survives the wire."""
    try:
        message = Message.from_bytes(data)
    except UnreadableBody:
        return
    assert Message.from_bytes(message.to_bytes()) == message


@settings(deadline=None)
@given(messages())
def test_reading_what_was_written_gives_the_same_message(message: Message) -> None:
    data = message.to_bytes()
    assert Message.from_bytes(data) == message
    assert Message.from_bytes(data).to_bytes() == data


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=100))
@example(b"\x91\xa1\xff")  # a name that is not UTF-8
@example(b"\x91" * 100_000)  # nested without end
@example(b"\x93\xa1a\xc4\x00\xdf\xff\xff\xff\xff")  # a map that announces four billion entries
@example(b"\x94\xa1a\xc4\x00\xc0\xdd\xff\xff\xff\xff")  # an array that does
@example(b"\x92\xa1a\xc6\xff\xff\xff\xff")  # four gigabytes
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    read_or_refuse(b"PMG4" + data)
    read_or_refuse(b"PMG4" + STATE + data)
    if not data.startswith(b"PMG"):
        with pytest.raises(UnreadableBody, match="this is not gossip"):
            Message.from_bytes(data)


@settings(max_examples=200, deadline=None)
@given(messages(), st.data())
def test_damaged_messages_are_read_or_refused_and_nothing_else(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(message.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(damaged))
    read_or_refuse(bytes(damaged[: data.draw(st.integers(4, len(damaged)))]))


everything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(everything, max_size=10) | everything)
def test_msgpack_of_another_shape_is_read_or_refused_and_nothing_else(content: Any) -> None:
    read_or_refuse(b"PMG4" + STATE + msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packed(), "must be an array of sender, fingerprint"),
        (packed("a", b"", None, [], [], [], b"", "", False, [], b"", 1), "must be an array of sender"),
        (packed("no name"), "sender must be a city's name"),
        (packed("faro\n"), "sender must be a city's name"),
        (packed("x" * 101), "sender must be a city's name"),
        (packed("a", PRINT, {"no name": (1, 1)}), "digest must be"),
        (packed("a", PRINT, {"b": (1, -1)}), "digest must be"),
        (packed("a", PRINT, {"b": (LAST_VERSION, 1)}), "digest must be"),
        (packed("a", PRINT, {"b": (1, 1, 1)}), "digest must be"),
        (packed("a", PRINT), "fingerprint must be 16 bytes"),
        (packed("a", b"", {}), "fingerprint must be 16 bytes"),
        (packed("a", PRINT + b"x", {}), "fingerprint must be 16 bytes"),
        (packed("a", PRINT, {}, ["text"]), "letters must be"),
        (packed("a", PRINT, {}, [], [b"bytes"]), "differences must be"),
        (packed("a", PRINT, {}, [], [DIFFERENCE[:-1]]), "differences must be"),
        (packed("a", PRINT, {}, [], [(*DIFFERENCE[:-1], b"short")]), "differences must be"),
        (packed("a", PRINT, {}, [], [("no name", *DIFFERENCE[1:])]), "differences must be"),
        (packed("a", PRINT, {}, [], [], ["no name"]), "whole must be"),
        (packed("a", PRINT, {}, [], [], [], b"short"), "base must be 16 bytes"),
        (packed("a", b"", None, [], [], [], STATE), "base must be 16 bytes beside a digest"),
        (packed("a", PRINT, {}, [], [], [], b"", "x" * 301), "address must be a text of at most 300"),
        (packed("a", PRINT, {}, [], [], [], b"", "", False, ["x" * 301]), "addresses must be"),
        (packed("a", PRINT, {}, [], [], [], b"", "", False, [], b"short"), "leave must be"),
        (packed("a", PRINT, {}, [], [], [], b"", "", False, [], bytes(73)), "leave must be"),
        (packed("a") + b"x", "damaged or cut short"),
        (packed("a")[:-1], "damaged or cut short"),
        (b"PMG4" + STATE, "it ends after 20 bytes"),
        (b"PMG4", "it ends after 4 bytes"),
        (b"", "this is not gossip"),
        (b'{"json": 1}', "this is not gossip"),
        (b"PMGx" + STATE, "this is not gossip"),
    ],
)
def test_a_refusal_says_which_field_is_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableBody, match=reason):
        Message.from_bytes(data)


@pytest.mark.parametrize(
    ("number", "advice"), [(b"2", "format 2: upgrade the sender"), (b"5", "format 5: upgrade the receiver")]
)
def test_another_format_gets_advice_which_city_to_upgrade(number: bytes, advice: str) -> None:
    with pytest.raises(IncompatibleMesh, match=f"speaks gossip format 4 and the sender {advice}"):
        Message.from_bytes(b"PMG" + number + bytes(40))


@pytest.mark.parametrize("entries", [17, MAX_ENTRIES + 1])
def test_only_so_many_entries_of_each_kind_are_read(entries: int) -> None:
    message = Message("a", PRINT, {}, state=STATE)
    digest = {f"c{i}": (1, 1) for i in range(entries)}
    for many in (
        replace(message, digest=digest),
        replace(message, letters=(b"",) * entries),
        replace(message, differences=(Difference(*DIFFERENCE),) * entries),
        replace(message, whole=("faro",) * entries),
        replace(message, addresses=("",) * entries),
    ):
        with pytest.raises(UnreadableBody, match=r"at most (16|20016)"):
            Message.from_bytes(many.to_bytes(), max_entries=16)


def test_messages_are_as_short_as_their_content() -> None:
    lisbon = node("lisbon", 2)
    lisbon.take([letter("porto", 300, epoch=7)])
    assert len(lisbon.brief_message().to_bytes()) == 4 + 16 + 1 + 7  # magic, state, array, name
    full = lisbon.full_message(lisbon.letters.values())
    letters = sum(len(each.wire) + 3 for each in lisbon.letters.values())
    names_ = 2 * 1 + len("lisbon") + len("porto")
    editions = (1 + 1 + 1) + (1 + 1 + 3)  # (1, 2) and (7, 300)
    assert len(full.to_bytes()) == 4 + 16 + 1 + 7 + 18 + 1 + names_ + editions + 1 + letters
    assert asdict(Message.from_bytes(full.to_bytes())) == asdict(full)


@pytest.mark.parametrize(
    ("cities", "letters", "arms", "shared", "size"),
    [
        (0, 0, 0, 0, 28),
        (12, 1, 5, 3, 791),
        (12, 1, 10, 10, 5_711),
        (12, 12, 10, 10, 66_288),
        (12, 0, 0, 0, 203),
        (256, 0, 0, 0, 3_377),
    ],
)
def test_messages_have_the_sizes_that_decision_11_states(
    cities: int, letters: int, arms: int, shared: int, size: int
) -> None:
    message = Message("lisbon", state=STATE)
    if cities:
        digest = {f"city{i:03}": (1, 5000) for i in range(cities)}
        message = replace(message, fingerprint=PRINT, digest=digest)
    if letters:
        numbers = make_policy("netpool").learner(Shape(arms, shared, 2)).numbers()
        wire = Seal(bytes(32)).close(Summary.of("lisbon", 1, 5000, PRINT, numbers)).wire
        message = replace(message, letters=(wire,) * letters)
    assert len(message.to_bytes()) == size


def test_the_state_names_the_letters_whatever_their_order() -> None:
    digest = {"faro": (1, 2), "porto": (3, 4)}
    state = state_of(PRINT, digest)
    assert state == state_of(PRINT, dict(reversed(digest.items())))
    assert state != state_of(PRINT, {**digest, "faro": (1, 3)})
    assert state != state_of(STATE[::-1], digest)

"""Digests as differences: what is said comes out complete, and forgetting costs bytes only."""

from hypothesis import given
from hypothesis import strategies as st

from pricemesh.gossip.digests import MAX_STATES, DigestMemory, changed_entries, with_entries
from pricemesh.gossip.message import Message, state_of
from pricemesh.gossip.peers import Peer
from tests.gossip.letters import PRINT, exchange, letter, memory, node

digests = st.dictionaries(
    st.sampled_from("abcdef"), st.just((0, 0)) | st.tuples(st.integers(1, 2), st.integers(0, 3))
)


@given(digests, digests)
def test_the_changed_entries_make_one_digest_into_the_other(
    one: dict[str, tuple[int, int]], other: dict[str, tuple[int, int]]
) -> None:
    entries = changed_entries(one, other)
    assert with_entries(other, entries) == one
    assert len(entries) <= len(one.keys() | other.keys())
    assert all(other.get(origin) != edition for origin, edition in entries.items())
    assert changed_entries(one, dict(one)) == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.integers(0, 5)), max_size=12))
def test_the_state_of_a_node_is_that_of_its_digest_after_any_history(
    history: list[tuple[str, int, int]],
) -> None:
    city = node("lisbon", 1)
    for origin, epoch, version in history:
        city.take([letter(origin, version, epoch)])
        if version == 5:
            city.drop(origin)
        elif version == 4:
            city.readmit(origin)
        assert city.state == state_of(PRINT, city.digest)
        editions = {name: each.edition for name, each in city.letters.items()}
        assert city.digest == editions | dict.fromkeys(city.dropped_origins, (0, 0))


def test_cities_that_meet_again_say_only_what_changed() -> None:
    one, other = node("one", 1), node("other", 1)
    one.take([letter(f"city{i}", 1) for i in range(200)])
    memories, peers = (memory(), memory()), (Peer(""), Peer(""))
    first = exchange(one, other, memories, peers)
    assert one.state == other.state
    assert exchange(one, other, memories, peers) == 28 - len("lisbon") + len("one")  # nothing new
    one.take([letter("city7", 2)])
    other.take([letter("city8", 2)])
    second = exchange(one, other, memories, peers)
    assert one.state == other.state
    bytes_of_letters = sum(len(letter(name, 2).wire) for name in ("city7", "city8"))
    assert second < bytes_of_letters + 300 < first / 50
    other.take([letter("city9", 3)])  # the caller has nothing new: its state says it all
    brief = exchange(one, other, memories, peers)
    assert one.letters["city9"].edition == (1, 3)
    assert brief < len(letter("city9", 3).wire) + 150


def test_a_city_that_has_forgotten_gets_the_complete_digest_in_the_same_exchange() -> None:
    one, other = node("one", 1), node("other", 1)
    one.take([letter(f"city{i}", 1) for i in range(20)])
    for lost in ((True, False), (False, True), (True, True)):
        memories, peers = (memory(), memory()), (Peer(""), Peer(""))
        exchange(one, other, memories, peers)
        for side, is_lost in zip(memories, lost, strict=True):
            if is_lost:
                side.forget()
        version = one.letters["city3"].summary.version + 1
        one.take([letter("city3", version)])
        other.take([letter("city4", version)])
        exchange(one, other, memories, peers)
        assert one.state == other.state


def test_the_memory_is_bounded_and_has_no_strangers() -> None:
    digest = {"a": (1, 1)}
    small = DigestMemory(3, lambda name: name.startswith("city"))
    for i in range(9):
        small.remember(f"city{i}", bytes([i]), digest)
        small.remember(f"stranger{i}", bytes([i]), digest)
    assert len(small) == 3
    assert small.newest("city8") == (b"\x08", digest)
    assert small.newest("city5") is None
    for state in (b"x", b"y", b"z", b"y"):
        small.remember("city8", state, digest)
    assert [small.find("city8", state) is not None for state in (b"x", b"y", b"z")] == [False, True, True]
    assert small.newest("city8") == (b"y", digest)
    assert MAX_STATES == 2


def test_a_base_that_nobody_remembers_has_no_digest() -> None:
    message = Message("city1", PRINT, {"a": (1, 2)}, base=bytes(16), state=bytes(16))
    assert memory().digest_in(message) is None
    assert memory().digest_in(Message("city1", PRINT, {"a": (1, 2)}, state=bytes(16))) == {"a": (1, 2)}

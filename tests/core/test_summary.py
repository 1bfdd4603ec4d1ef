"""The wire form, the merge and the layout of summaries."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricemesh.core.summary import Field, Layout, Summary, fingerprint, merge
from pricemesh.errors import BadSummary

any_summary = st.builds(
    Summary,
    origin=st.sampled_from(["lisbon", "porto", "faro", "évora"]),
    epoch=st.integers(0, 2),
    version=st.integers(0, 3),
    fingerprint=st.just(bytes(16)),
    payload=st.sampled_from([bytes(8), bytes(7) + b"\x01", b"\x01" + bytes(15)]),
)
any_summaries = st.lists(any_summary, max_size=8)


@given(st.text(max_size=30), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=80))
def test_the_wire_form_gives_back_the_same_bits(origin: str, epoch: int, version: int, raw: bytes) -> None:
    payload = raw[: len(raw) // 8 * 8]  # any bit pattern: NaNs with payloads and negative zeros too
    summary = Summary(origin, epoch, version, bytes(range(16)), payload)
    wire = summary.to_bytes()
    assert Summary.from_bytes(wire) == summary
    assert len(wire) == 42 + len(origin.encode()) + len(payload)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_the_versions_of_blocks_survive_the_wire_in_as_few_bytes_as_the_oldest_needs(lags: list[int]) -> None:
    summary = Summary.of("lisbon", 1, 2**64 - 1, bytes(16), np.zeros(2), tuple(lags))
    assert summary.lags == (tuple(lags) if any(lags) else ())
    wire = summary.to_bytes()
    assert Summary.from_bytes(wire) == summary
    width = next(width for width in (1, 2, 4, 8) if max(lags, default=0) < 256**width)
    header = 42 + (3 + width * len(summary.lags) if summary.lags else 0)
    assert len(wire) == header + len("lisbon") + 16


def test_the_wire_form_preserves_every_float_exactly() -> None:
    numbers = np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, np.pi])
    back = Summary.from_bytes(Summary.of("a", 1, 2, bytes(16), numbers).to_bytes()).numbers
    assert [struct.pack("<d", v) for v in numbers] == [struct.pack("<d", v) for v in back]


@given(any_summaries, any_summaries, any_summaries)
def test_merging_is_idempotent_commutative_and_associative(
    a: list[Summary], b: list[Summary], c: list[Summary]
) -> None:
    newest_a, newest_b, newest_c = merge({}, a), merge({}, b), merge({}, c)
    assert merge(newest_a, a) == newest_a
    assert merge(newest_a, b) == merge(newest_b, a)
    left = merge(merge(newest_a, newest_b.values()), newest_c.values())
    assert left == merge(newest_a, merge(newest_b, newest_c.values()).values())


def test_the_newest_epoch_then_version_wins() -> None:
    old = Summary("lisbon", 1, 900, bytes(16), bytes(8))
    new = Summary("lisbon", 2, 3, bytes(16), bytes(8))
    assert merge({"lisbon": new}, [old])["lisbon"] is new


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda wire: wire[:20], "at least"),
        (lambda wire: b"XXXX" + wire[4:], "not a summary"),
        (lambda wire: wire[:-1], "announces"),
        (lambda wire: wire + b"\0", "announces"),
        (lambda wire: wire[:47] + b"\xff" + wire[48:], "UTF-8"),
        (lambda wire: wire[:44] + b"\x02\x01\0\0\0" + wire[47:], "more bytes than"),
        (lambda wire: wire[:44] + b"\x03" + bytes(6) + wire[47:], "cannot be read"),
        (lambda wire: wire[:42] + b"\0\0\0" + wire[47:], "cannot be read"),
        (lambda wire: wire[:43], "cannot be read"),
        (lambda wire: wire[:45] + b"\0\0" + wire[47:], "no block can"),
        (lambda wire: wire[:45] + b"\0\x09" + wire[47:], "no block can"),
        (lambda wire: wire[:38] + b"\xff\xff\xff\xff" + wire[42:], "beyond the limit"),
    ],
)
def test_damaged_bytes_are_refused_with_a_reason(damage, message: str) -> None:  # type: ignore[no-untyped-def]
    wire = Summary("lisbon", 1, 1, bytes(16), bytes(16), (1, 0)).to_bytes()
    with pytest.raises(BadSummary, match=message):
        Summary.from_bytes(damage(wire))


def test_a_layout_packs_half_of_a_symmetric_matrix_and_unpacks_all_of_it() -> None:
    layout = Layout(2, 3, (Field("m", 2), Field("v", 1), Field("n", 0), Field("x", 1, per_arm=False)))
    assert layout.size == 2 * (6 + 3 + 1) + 3
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 2, 3, 3))
    parts = {
        "m": half + half.swapaxes(-1, -2),
        "v": rng.normal(size=(4, 2, 3)),
        "n": rng.normal(size=(4, 2)),
        "x": rng.normal(size=(4, 3)),
    }
    packed = layout.pack(parts)
    assert packed.shape == (4, layout.size)
    for name, value in layout.unpack(packed).items():
        np.testing.assert_array_equal(value, parts[name])
    with pytest.raises(BadSummary, match="numbers"):
        layout.unpack(packed[:, 1:])


def test_a_fingerprint_depends_on_the_schema_and_not_on_the_order_of_its_keys() -> None:
    assert fingerprint({"a": 1, "b": [1.5]}) == fingerprint({"b": [1.5], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert len(fingerprint({})) == 16

"""The byte layout of a decision's vectors: what is packed is unpacked, and old rows stay readable."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricemesh.core.arrays import Array
from pricemesh.core.decision import COLUMNS, Decision, DecisionCodec, Occasion
from pricemesh.core.policies import Shape
from pricemesh.core.ucb import Score

numbers = st.floats(width=64)  # also infinities and NaN: a codec keeps every bit


@st.composite
def batches(draw: st.DrawFn) -> tuple[Shape, Array, Score, tuple[Array, ...]]:
    """Contexts (m, d), scores (m, K) and, of J peers, contributions (m, J) twice or none."""
    shape = Shape(draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(0, 4)))
    rows, peers = draw(st.integers(1, 5)), draw(st.integers(0, 3))

    def matrix(columns: int) -> Array:
        values = draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
        return np.array(values, dtype=np.float64).reshape(rows, columns)

    score = Score(matrix(shape.arms), matrix(shape.arms))
    return shape, matrix(shape.dim), score, (matrix(peers), matrix(peers)) if peers else ()


@given(batches())
@settings(deadline=None)
def test_what_is_packed_is_unpacked(batch: tuple[Shape, Array, Score, tuple[Array, ...]]) -> None:
    shape, contexts, score, contributions = batch
    codec = DecisionCodec(shape)
    packed = codec.pack(contexts, score, contributions)
    assert len(packed) == len(contexts)
    estimates, radii = contributions or (np.empty((len(contexts), 0)),) * 2
    for i, vectors in enumerate(packed):
        unpacked = codec.unpack(vectors)
        expected = (contexts[i], score.estimate[i], score.radius[i], estimates[i], radii[i])
        for part, whole in zip(unpacked, expected, strict=True):
            assert part.tobytes() == whole.tobytes()
        assert codec.context(vectors).tobytes() == contexts[i].tobytes()
        for arm in range(shape.arms):
            chosen = codec.chosen(arm, vectors)
            np.testing.assert_array_equal(chosen, (score.estimate[i, arm], score.radius[i, arm]))


@given(batches())
@settings(deadline=None)
def test_the_layout_is_little_endian_float64_in_the_order_of_the_fields(
    batch: tuple[Shape, Array, Score, tuple[Array, ...]],
) -> None:
    shape, contexts, score, contributions = batch
    packed = DecisionCodec(shape).pack(contexts, score, contributions)
    for i, vectors in enumerate(packed):
        values = [number for part in (contexts, *score, *contributions) for number in part[i].tolist()]
        assert isinstance(vectors, bytes)
        assert vectors == struct.pack(f"<{len(values)}d", *values)


def test_the_score_of_one_context_needs_no_rows() -> None:
    codec = DecisionCodec(Shape(2, 1, 1))
    score = Score(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    assert codec.pack(np.array([[5.0, 6.0]]), score) == [struct.pack("<6d", 5, 6, 1, 2, 3, 4)]


def test_a_decision_is_read_from_its_columns() -> None:
    occasion = Occasion(1.5, "netpool", 7, "porto,faro")
    decision = Decision("d1", "ann", 2, 9.5, "[]", b"12345678", 0.25, 0.5, occasion)
    values = {**decision._asdict(), **occasion._asdict()}
    assert Decision.from_columns([values[name] for name in COLUMNS]) == decision


def test_vectors_that_are_too_short_are_refused() -> None:
    codec = DecisionCodec(Shape(2, 1, 1))
    with pytest.raises(ValueError, match="buffer"):
        codec.context(b"12345678")

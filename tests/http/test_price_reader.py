"""The decoder that is made for a city's features takes what the models take, as the same numbers, and leaves
every refusal to them."""

from operator import add
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pricemesh.city.deciding import Quote
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.errors import InvalidContext, UnreadableBody
from pricemesh.http import schemas
from pricemesh.http.answers import DecisionBodies, DecisionBody
from pricemesh.http.price_reader import PriceReader
from pricemesh.http.problems import parsed

MOST = 3
SPACES = [
    FeatureSpace((Feature("demand"), Feature("rain", 0, 1)), (Feature("on strike?", -5, 5),)),
    FeatureSpace((Feature("größe"),)),
]

_NUMBERS = """
0 1 0.5 -0 -0.0 5 -5 1.0000000000000002 3.14159 1e3 2.5E-7 1e-400 1e308 1e400 -1e400 9007199254740993
18446744073709551617 123456789012345678901234567890.5 NaN Infinity null true 01 1. .5 +1 0x1 [] {} "1"
"""
_KEYS = ["demand", "rain", "on strike?", "größe", "gr\\u00f6\\u00dfe", "other", ""]
_NAMES = ["order-1", "a", "", "order\\n", "a b", "é", "\\ud800", "\\ud83d\\ude00"]
_LONG_NAMES = ["x" * length for length in (128, 129, 200, 201)]

numbers = st.one_of(
    st.sampled_from([*_NUMBERS.split(), "1" + "0" * 400, "[" * 500 + "]" * 500]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
keys = st.sampled_from([f'"{key}"' for key in _KEYS])
ids = st.sampled_from(["null", "1", *(f'"{name}"' for name in _NAMES + _LONG_NAMES)])


@st.composite
def objects(draw: st.DrawFn, members: st.SearchStrategy[tuple[str, str]], most: int) -> str:
    pairs = draw(st.lists(members, max_size=most))
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    return "{" + ",".join(f"{key}{space}:{space}{value}" for key, value in pairs) + "}"


def whole(space: FeatureSpace) -> st.SearchStrategy[str]:
    """Every feature, some with another number, one too many or one twice: many of these are good."""

    def part(features: tuple[Feature, ...]) -> st.SearchStrategy[str]:
        values = st.tuples(*(st.just("0.5") | numbers for _ in features))
        names = [f'"{feature.name}":' for feature in features]
        return values.map(lambda given: "{" + ",".join(map(add, names, given)) + "}")

    names = st.just("") | ids.map(lambda id_: f',"decision_id":{id_}') | ids.map(lambda s: f',"subject":{s}')
    return st.builds(
        lambda shared, local, name: f'{{"shared":{shared},"local":{local}{name}}}',
        part(space.shared),
        part(space.local),
        names,
    )


features = objects(st.tuples(keys, numbers), 4)
fields = st.one_of(
    st.tuples(st.sampled_from(['"shared"', '"local"']), features | numbers),
    st.tuples(st.sampled_from(['"decision_id"', '"subject"', '"other"']), ids),
)


def requests(space: FeatureSpace) -> st.SearchStrategy[str]:
    return whole(space) | objects(fields, 4)


def bodies(space: FeatureSpace) -> st.SearchStrategy[str]:
    several = st.lists(requests(space), max_size=MOST + 1).map(
        lambda some: '{"requests":[' + ",".join(some) + "]}"
    )
    end = st.sampled_from(["", " ", "}", ",", "\x00", '{"shared":{}}'])
    return st.builds(lambda body, end: body + end, requests(space) | several, st.just("") | end)


def came_of(read: Any, space: FeatureSpace) -> Any:
    try:
        quote: Quote = read()
        return quote.names, space.rows(quote.contexts).tobytes()
    except (UnreadableBody, InvalidContext) as fault:
        return type(fault), fault.faults


@settings(max_examples=600, deadline=None, derandomize=True)
@given(st.sampled_from(SPACES).flatmap(lambda space: st.tuples(st.just(space), bodies(space))))
@example((SPACES[0], '{"shared":{"demand":1,"rain":0.5,"other":1},"local":{"on strike?":0}}'))
@example((SPACES[0], '{"shared":{"demand":1,"rain":0.5},"local":{"on strike?":0},"other":1}'))
@example((SPACES[0], '{"shared":{"demand":1,"rain":0.5,"demand":2},"local":{"on strike?":0}}'))
@example((SPACES[0], '{"shared":{"demand":1,"rain":2},"local":{"on strike?":7}}'))
@example((SPACES[0], '{"shared":{"demand":1,"rain":0.5}}'))
@example((SPACES[1], '{"shared":{"größe":1}}'))
@example((SPACES[1], '{"requests":[{"shared":{"größe":1}}],"other":1}'))
def test_the_decoder_and_the_models_agree(drawn: tuple[FeatureSpace, str]) -> None:
    space, text = drawn
    body, reader = text.encode(), PriceReader(space, MOST)

    def many_by_models() -> Quote:
        batch = parsed(schemas.PriceBatch, body).requests
        if len(batch) > MOST:
            raise UnreadableBody([("requests", f"at most {MOST} in one call, not {len(batch)}")])
        return reader._quote_by_models(batch)

    one = came_of(lambda: reader.one(body), space)
    assert one == came_of(lambda: reader._quote_by_models([parsed(schemas.PriceRequest, body)]), space)
    assert came_of(lambda: reader.many(body), space) == came_of(many_by_models, space)


@pytest.mark.parametrize("name", ["", ',"decision_id":"order-1"', ',"decision_id":null,"subject":"Zoë"'])
def test_a_good_body_needs_no_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pricemesh.http.price_reader.parsed")
    request = f'{{"local":{{"on strike?":-1}},"shared":{{"rain":0.25,"demand":2}}{name}}}'
    reader = PriceReader(SPACES[0], MOST)
    assert SPACES[0].rows(reader.one(request.encode()).contexts).tolist() == [[2.0, 0.25, -1.0]]
    assert reader.many(f'{{"requests":[{request},{request}]}}'.encode()).size == 2


def test_bytes_that_are_no_text_are_refused_by_the_models() -> None:
    reader = PriceReader(SPACES[1], MOST)
    for body in (
        b'{"shared":{"gr\xff":1}}',
        b'{"shared":{},"subject":"\xed\xa0\x80"}',
        b"",
        b"\xef\xbb\xbf{}",
    ):
        with pytest.raises(UnreadableBody):
            reader.one(body)


def test_a_city_with_names_that_json_escapes_is_read_by_the_models() -> None:
    space = FeatureSpace((Feature('5" pipe'), Feature("a\\b")))
    quote = PriceReader(space, MOST).one(rb'{"shared":{"5\" pipe":2,"a\\b":3}}')
    assert space.rows(quote.contexts).tolist() == [[2.0, 3.0]]


def test_an_answer_has_the_fields_of_its_model() -> None:
    assert list(DecisionBody.__struct_fields__) == list(schemas.Decision.model_fields)
    assert list(DecisionBodies.__struct_fields__) == list(schemas.DecisionBatch.model_fields)

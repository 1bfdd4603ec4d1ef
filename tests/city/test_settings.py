"""A configuration's faults: all of them, each under its key, in words that tell what to write."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from pricemesh.city.configuration import as_variables, load_settings, settings_from, without_secrets
from pricemesh.city.settings import Settings
from pricemesh.errors import WrongConfiguration

GOOD: dict[str, Any] = {
    "city": "lisbon",
    "arms": {"prices": [8, 9]},
    "features": {"shared": ["rain"]},
    "reward": {"kind": "value", "largest": 100},
}
KINDS = (
    'kind = "purchase" (feedback says how many units were `sold`; the reward is (price - cost) * sold), or '
    'kind = "value" and largest = 100.0 (feedback gives the `reward` itself, in any unit, at most this large '
    "either way)"
)
LIBRARY_WORDS = (
    "Input should",
    "validation",
    "Tuple",
    "List should",
    "Field required",
    "valid string",
    "valid integer",
    "valid number",
    "Extra inputs",
    "pydantic",
    "String should",
    "pattern '",
    "unable to parse",
    "Value error",
    "valid dictionary",
    "instance of",
)
HOSTILE: tuple[Any, ...] = (
    "",
    "maybe",
    "\ud800",
    "x" * 1000,
    "[1, 2",
    "1e400",
    "9" * 5000,
    True,
    None,
    -1,
    0,
    1.5,
    10**400,
    float("nan"),
    float("-inf"),
    b"bytes",
    object(),
    [],
    [None],
    [-1],
    ["http://["],
    ["http://a:b"],
    [[]],
    [{}],
    [{"name": 5}],
    list(range(2000)),
    {},
    {"bogus": 1},
    {"name": []},
)


def faults_of(values: dict[str, Any]) -> list[str]:
    """What `load_settings` says of these values, given as variables."""
    return faults_of_variables(as_variables(values))


def faults_of_variables(variables: dict[str, str], path: Path | None = None) -> list[str]:
    with pytest.raises(WrongConfiguration) as error:
        load_settings(path, variables)
    return error.value.faults


@pytest.fixture(autouse=True)
def no_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


FILE = (
    'city = "lisbon"\n[arms]\nprices = [8, 9]\n[features]\nshared = ["rain"]\n'
    '[reward]\nkind = "value"\nlargest = 100\n'
)


@pytest.mark.parametrize(
    ("addition", "fault"),
    [
        ("[guardrails]\nmax_step = -1", "guardrails.max_step: must be greater than 0, not -1"),
        ("[guardrails]\nfloor = nan", "guardrails.floor: must be a finite number, not nan"),
        ("[guardrails]\nfloor = 'low'", "guardrails.floor: must be a number, not 'low'"),
        ("[guardrails]\nfloor = 10", "guardrails: floor and ceiling exclude every price of arms.prices"),
        ("[gossip]\ninterval_seconds = 0", "gossip.interval_seconds: must be greater than 0, not 0"),
        (
            "[gossip]\ninterval_second = 1",
            "gossip.interval_second: unknown key; did you mean gossip.interval_seconds?",
        ),
        ("[gossip]\nfan_out = 1.5", "gossip.fan_out: must be a whole number, not 1.5"),
        ("[gossip]\ndiscover = 'maybe'", "gossip.discover: must be true or false, not 'maybe'"),
        ("[gossip]\ngroup = ''", "gossip.group: must have at least one character"),
        ("[gossip]\ngroup = 5", "gossip.group: must be text, not a number"),
        ("[gossip]\npeers = ['http://a:b']", "gossip.peers: 'http://a:b' is not http://host:port"),
        (
            "[gossip]\npeers = 5",
            'gossip.peers: must be a list, such as ["http://10.0.0.2:8000"], not a number',
        ),
        ("[server]\nport = 70000", "server.port: must be at most 65535, not 70000"),
        ("[server]\nport = []", "server.port: must be a whole number, not a list"),
        ("[security]\napi_keys_file = 5", "security.api_keys_file: must be the path of a file, not a number"),
        ("[limits]\nbody_bytes = 1", "limits.body_bytes: must be at least 1024, not 1"),
        ("[policy]\nname = 'magic'", "policy: unknown policy 'magic': choose from"),
        ("[[lab]]", "lab: must be a section, written [lab], not a list"),
        ("[databse]\nurl = 'x'", "databse: unknown key; did you mean database?"),
        ("[other]\nfloor = 1", "other: unknown key"),
        (
            "[database]\nurl = 'postgresql+psycopg://me:hush@db:x/y'",
            "database.url: must be written postgresql+psycopg://user:password@host:port/database",
        ),
    ],
)
def test_a_fault_names_its_key_and_says_what_is_allowed(tmp_path: Path, addition: str, fault: str) -> None:
    (line,) = faults_of_variables({}, write(tmp_path / "city.toml", f"{FILE}{addition}\n"))
    assert line.startswith(fault)
    assert "hush" not in line


@pytest.mark.parametrize(
    ("prices", "fault"),
    [
        ("[8]", "give at least two prices, not 1"),
        ("[-1, 2]", "a price must be 0 or more, not -1"),
        ("[2, -1]", "a price must be 0 or more, not -1"),
        ("[9, 8]", "prices must ascend, and 8 comes after 9"),
        ("[8, 8]", "prices must ascend, and 8 comes after 8"),
        ("8", "must be a list, such as [8.0, 9.0], not a number"),
    ],
)
def test_prices_are_at_least_two_and_ascend_from_zero(tmp_path: Path, prices: str, fault: str) -> None:
    path = write(tmp_path / "city.toml", FILE.replace("[8, 9]", prices))
    assert faults_of_variables({}, path) == [f"arms.prices: {fault}"]


def test_a_price_of_zero_is_allowed() -> None:
    assert load_settings(None, as_variables(GOOD | {"arms": {"prices": [0, 1]}})).arms.prices == (0, 1)


def test_an_item_of_a_list_is_named_by_its_place() -> None:
    assert faults_of(GOOD | {"arms": {"prices": [1, "two", float("inf")]}}) == [
        "arms.prices.1: must be a number, not 'two' (set by PRICEMESH_ARMS_PRICES)",
        "arms.prices.2: must be a finite number, not inf (set by PRICEMESH_ARMS_PRICES)",
    ]
    features = {"shared": ["rain", 5, {"min": 0}]}
    assert faults_of(GOOD | {"features": features}) == [
        'features.shared.1: must be a name or a table, such as { name = "rain", min = 0, max = 1 }, not 5 '
        "(set by PRICEMESH_FEATURES_SHARED)",
        'features.shared.2.name: is missing: write name = "rain" (set by PRICEMESH_FEATURES_SHARED)',
    ]


def test_what_is_missing_is_shown_as_it_should_be_written(tmp_path: Path) -> None:
    assert faults_of_variables({}) == [
        'city: is missing: write city = "lisbon"',
        "arms: is missing: write [arms] with prices = [8.0, 9.0, 10.0]",
        'features: is missing: write [features] with shared = ["demand", "rain"]',
        f"reward: is missing: write [reward] with {KINDS}",
    ]
    path = write(tmp_path / "city.toml", 'city = "lisbon"\n[arms]\n[features]\n[reward]\n')
    assert faults_of_variables({}, path) == [
        "arms.prices: is missing: write prices = [8.0, 9.0, 10.0] under [arms]",
        'features.shared: is missing: write shared = ["demand", "rain"] under [features]',
        f"reward.kind: is missing: write {KINDS}",
    ]


def test_a_city_is_named_by_its_rule() -> None:
    (fault,) = faults_of(GOOD | {"city": "a b"})
    rule = "a letter or digit, then up to 99 letters, digits, dots, dashes or underscores"
    assert fault == f"city: must be {rule}, not 'a b' (set by PRICEMESH_CITY)"


def test_a_key_in_the_wrong_section_is_found_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "city.toml", f"drain_seconds = 1\n{FILE}")
    assert faults_of_variables({}, path) == ["drain_seconds: unknown key; did you mean server.drain_seconds?"]


def test_all_faults_are_listed_at_once_whatever_their_source(tmp_path: Path) -> None:
    write(tmp_path / ".env", "PRICEMESH_LIMITS_BATCH_SIZE=0\nPRICEMESH_BOGUS=1\n")
    path = write(tmp_path / "city.toml", FILE.replace("[8, 9]", "[8]"))
    variables = {"PRICEMESH_GOSSIP__FAN_OUT": "many", "PRICEMESH_GOSSIP_DISCOVER": "perhaps"}
    assert faults_of_variables(variables, path) == [
        "arms.prices: give at least two prices, not 1",
        "gossip.discover: must be true or false, not 'perhaps' (set by PRICEMESH_GOSSIP_DISCOVER)",
        "gossip.fan_out: must be a whole number, not 'many' (set by PRICEMESH_GOSSIP__FAN_OUT)",
        "limits.batch_size: must be at least 1, not '0' (set by PRICEMESH_LIMITS_BATCH_SIZE)",
        "bogus: unknown key (set by PRICEMESH_BOGUS)",
    ]


def test_both_spellings_of_a_variable_set_the_same_key() -> None:
    for name in ("PRICEMESH_DATABASE_URL", "PRICEMESH_DATABASE__URL"):
        settings = load_settings(None, as_variables(GOOD) | {name: "sqlite:///x.db"})
        assert settings.database.url == "sqlite:///x.db"


def test_settings_survive_the_way_through_variables() -> None:
    peers = {"peers": ["http://a:1", "http://b:2"], "secrets": ["k1:" + "s" * 32], "discover": True}
    settings = load_settings(None, as_variables(GOOD | {"gossip": peers}))
    again = load_settings(None, as_variables(settings.model_dump(mode="json", exclude_none=True)))
    assert again == settings
    assert load_settings(
        None, as_variables(GOOD) | {"PRICEMESH_GOSSIP_PEERS": "http://a:1, http://b:2"}
    ).gossip.peers == (
        "http://a:1",
        "http://b:2",
    )


def test_secrets_are_shown_neither_by_config_nor_by_faults() -> None:
    hush = "hush-hush-hush-hush-hush-hush-hush"
    gossip = {"secrets": [f"k1:{hush}"]}
    url = f"postgresql+psycopg://me:{hush}@db/lisbon"
    settings = load_settings(None, as_variables(GOOD | {"gossip": gossip, "database": {"url": url}}))
    assert hush not in json.dumps(without_secrets(settings))
    wrong = {"gossip": {"secrets": [hush, f"k1:{hush}"]}, "database": {"url": f"mysql://me:{hush}@db"}}
    for values in (wrong, {"gossip": hush}, {"database": hush}, {"gossip": {"secrets": [[hush]]}}):
        assert hush not in "\n".join(faults_of(GOOD | values))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"city = ", "not TOML"),
        (b'city = "\xff"', "not TOML: it is not text in UTF-8"),
        (b"port = " + b"9" * 5000, "not TOML"),
        (b"a = " + b"[" * 5000, "not TOML"),
    ],
)
def test_a_file_that_is_not_toml_is_one_fault(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "city.toml"
    path.write_bytes(content)
    (line,) = faults_of_variables({}, path)
    assert line.startswith(f"{path}: {fault}")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert faults_of_variables({}, missing) == [f"{missing}: cannot be read: No such file or directory"]
    (tmp_path / ".env").write_bytes(b"PRICEMESH_CITY=\xff\n")
    assert faults_of_variables({}) == [".env: it is not text in UTF-8"]


def keys_of(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every section and key that a configuration can have."""
    for name, field in model.model_fields.items():
        yield (*above, name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys_of(kind, (*above, name))


def test_no_value_of_any_key_is_answered_in_a_librarys_words() -> None:
    keys = [*keys_of(Settings), ("policy", "alpha"), ("policy", "heterogeneity"), ("bogus",)]
    assert ("gossip", "interval_seconds") in keys
    assert ("features", "shared", "name") in keys
    listed = 0
    for key in keys:
        for hostile in HOSTILE:
            values = {section: dict(v) if isinstance(v, dict) else v for section, v in GOOD.items()}
            _place(values, key, hostile)
            try:
                settings_from(values)
            except WrongConfiguration as error:
                for fault in error.faults:
                    assert not [word for word in LIBRARY_WORDS if word.lower() in fault.lower()], fault
                    assert "cannot be" not in fault, f"no wording for this fault: {fault}"
                    assert len(fault) < 300, fault
                    assert fault.split(":")[0].startswith(key[0]), fault
                    listed += 1
    assert listed > 500


def _place(values: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
    section, *rest = key
    if not rest:
        values[section] = value
    elif len(rest) == 1:
        values.setdefault(section, {})[rest[0]] = value
    else:  # a key of an item of a list
        values[section][rest[0]] = [{"name": "rain", rest[1]: value}]


KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("written", "names", "keys"),
    [
        (["porto", "faro"], ["porto", "faro"], {}),
        ("porto, faro", ["porto", "faro"], {}),
        ({"lisbon": KEY.hex(), "porto": ""}, ["lisbon", "porto"], {"lisbon": KEY}),
        (f"lisbon={KEY.hex().upper()},porto", ["lisbon", "porto"], {"lisbon": KEY}),
        ({"lisbon": base64.b64encode(KEY).decode()}, ["lisbon"], {"lisbon": KEY}),
        (f"lisbon={base64.b64encode(KEY).decode()}, porto=", ["lisbon", "porto"], {"lisbon": KEY}),
        ({"lisbon": base64.urlsafe_b64encode(KEY).rstrip(b"=").decode()}, ["lisbon"], {"lisbon": KEY}),
    ],
)
def test_cities_are_names_or_names_with_keys(written: Any, names: list[str], keys: dict[str, bytes]) -> None:
    variables = as_variables({**GOOD, "gossip": {"cities": written}})
    for settings in (settings_from({**GOOD, "gossip": {"cities": written}}), load_settings(None, variables)):
        assert list(settings.gossip.cities) == names
        assert settings.gossip.city_keys == keys


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({"lisbon": "short"}, "64 hexadecimal digits"),
        ("lisbon=short", "64 hexadecimal digits"),
        (["no name"], "a city's name is"),
        ({"": ""}, "a city's name is"),
        ({"lisbon": 5}, "a list of names, or a table"),
        (7, "a list of names, or a table"),
    ],
)
def test_a_wrong_name_or_key_of_a_city_is_a_fault(written: Any, fault: str) -> None:
    with pytest.raises(WrongConfiguration) as refused:
        settings_from({**GOOD, "gossip": {"cities": written}})
    (line,) = refused.value.faults
    assert line.startswith("gossip.cities: ")
    assert fault in line

"""What the documents name exists: configurations, commands, options, variables, metrics, links, anchors."""

import re
import tomllib
from pathlib import Path

import pytest

from documentation.city import example_app
from documentation.commands import command_tree, options_of
from pricemesh.city.configuration import NOT_SETTINGS, PREFIX, settings_from
from pricemesh.city.settings import Settings
from tests.documentation.documents import DOCUMENTS, ROOT, anchors, blocks, commands, links, name

BASE = tomllib.loads((ROOT / "docs/lisbon.toml").read_text())
COMMANDS = command_tree()


def test_there_are_documents_to_check() -> None:
    texts = [path.read_text() for path in DOCUMENTS]
    assert len(texts) > 50
    assert sum(len(blocks(text, "toml")) for text in texts) >= 4
    assert sum(len(list(commands(text))) for text in texts) > 150
    assert sum(len(links(text)) for text in texts) > 300


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_configurations_in_a_document_are_read_by_a_city(path: Path) -> None:
    """One without a city's name is a part of one."""
    for block in blocks(path.read_text(), "toml"):
        values = tomllib.loads(block)
        settings_from(values if "city" in values else BASE | values)


def test_the_annotated_example_names_keys_that_exist() -> None:
    """Also those that are commented out."""
    section, missing = "", []
    for line in (ROOT / "docs/lisbon.toml").read_text().splitlines():
        if match := re.match(r"(?:# )?\[(\w+)\]$", line):
            section = match[1]
        elif section and (match := re.match(r"(?:# )?(\w+) = ", line)):
            model = Settings.model_fields[section].annotation
            fields = getattr(model, "model_fields", {})
            if match[1] not in fields and (section, match[1]) != ("policy", "exploration"):
                missing.append(f"{section}.{match[1]}")
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_in_a_document_exist_with_their_options(path: Path) -> None:
    for words in commands(path.read_text()):
        if not words or words[0].startswith("--"):
            assert words in ([], ["--help"], ["--version"]), words
            continue
        subject = words[0].strip(",.`")
        if subject in ("COMMAND", "..."):
            continue
        key = next((key for key in (f"{subject} {' '.join(words[1:2])}", subject) if key in COMMANDS), None)
        if subject == "keys" and key is None:
            assert words == ["keys"], words
            continue
        assert key is not None, f"there is no command {words}"
        options = {word.partition("=")[0] for word in words if re.match(r"--\w", word)}
        assert options <= options_of(COMMANDS[key]), f"{words}: {options - options_of(COMMANDS[key])}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_variables_in_a_document_are_settings(path: Path) -> None:
    known = {
        f"{PREFIX}{section}_{key}".upper()
        for section, field in Settings.model_fields.items()
        for key in getattr(field.annotation, "model_fields", ())
    }
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]+[A-Z]\b", path.read_text()))
    assert named <= known | NOT_SETTINGS | {f"{PREFIX}CITY"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_metrics_in_a_document_are_exposed(path: Path) -> None:
    families = example_app().admission.metrics.registry.collect()
    endings = {"counter": ("_total",), "histogram": ("", "_bucket", "_sum", "_count")}
    exposed = {family.name + ending for family in families for ending in endings.get(family.type, ("",))}
    assert set(re.findall(r"\bpricemesh_\w+", path.read_text())) <= exposed


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_and_anchors_in_a_document_lead_somewhere(path: Path) -> None:
    missing = []
    for link in links(path.read_text()):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            missing.append(link)
    assert missing == []


def test_the_checks_find_what_is_wrong() -> None:
    block = "```sh\nX=1 pricemesh serve --colour red | cat\npip install pricemesh\n```\n"
    text = block + "[a](#b-c) `[x](y)`\n## B, c\n"
    assert list(commands(text)) == [["serve", "--colour", "red"]]
    assert "--colour" not in options_of(COMMANDS["serve"])
    assert links(text) == ["#b-c"]
    assert anchors(text) == {"b-c"}

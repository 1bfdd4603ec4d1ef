"""`pricemesh keys`: API keys of a city, and the secret that the cities of a mesh share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.terminal import notes
from pricemesh.errors import InvalidParameter, WrongConfiguration

if TYPE_CHECKING:
    from pricemesh.http.keys import Key

app = typer.Typer(help="API keys: who may call what.", no_args_is_help=True, rich_markup_mode="markdown")
DEFAULT_FILE = Path("keys.toml")
KeysFile = Annotated[Path, typer.Option("--file", metavar="FILE", help="The file of keys.")]

NEW_EXAMPLES = """
**Examples**

`pricemesh keys new --scope price,feedback --name shop`

`pricemesh keys new --scope admin --file /etc/pricemesh/keys.toml`
"""

LIST_EXAMPLES = """
**Examples**

`pricemesh keys list`

`pricemesh keys list --file /etc/pricemesh/keys.toml`
"""

REVOKE_EXAMPLES = """
**Examples**

`pricemesh keys revoke 0a1b2c3d4e5f` — the id as `pricemesh keys list` shows it
"""

GOSSIP_EXAMPLES = """
**Examples**

`export PRICEMESH_GOSSIP_SECRETS=$(pricemesh keys gossip)`

`pricemesh keys gossip --id k2` — the next one, beside k1
"""

CITY_EXAMPLES = """
**Examples**

`pricemesh keys city http://127.0.0.1:8001` — prints lisbon=0a1b...

`export PRICEMESH_GOSSIP_CITIES=$(pricemesh keys city http://127.0.0.1:8001),porto`
"""


def _read(file: Path) -> "dict[str, Key]":
    """The keys of a file, or an error in terms of this command."""
    from pricemesh.http.keys import read_keys

    try:
        return read_keys(file)
    except WrongConfiguration as error:
        (fault,) = error.faults
        detail = fault.removeprefix("security.api_keys_file: ")
        raise InvalidParameter(f"cannot read {detail}: name the file of keys with --file") from None


@app.command("new", epilog=NEW_EXAMPLES)
def keys_new(
    scope: Annotated[str, typer.Option(help="price, feedback, read, admin; several with commas.")],
    name: Annotated[str, typer.Option(help="The name of its holder.")] = "",
    file: KeysFile = DEFAULT_FILE,
) -> None:
    """Make a key. It is printed once; the file has only its hash. A running city takes it in 2 seconds."""
    from pricemesh.http.keys import new_key, write_keys

    presented, key = new_key(scope, name)
    keys = _read(file) if os.path.exists(file) else {}  # false in a folder that is closed to us
    write_keys(file, {**keys, key.id: key})
    print(presented)
    notes.print(
        f"stored in {file} as {key.id}; this is the only time the key is shown",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@app.command("list", epilog=LIST_EXAMPLES)
def keys_list(file: KeysFile = DEFAULT_FILE) -> None:
    """List the keys: id, scopes, name."""
    for key in _read(file).values():
        print(f"{key.id}  {','.join(sorted(key.scopes))}  {key.name}")


@app.command("revoke", epilog=REVOKE_EXAMPLES)
def keys_revoke(id_: Annotated[str, typer.Argument(metavar="ID")], file: KeysFile = DEFAULT_FILE) -> None:
    """Revoke a key. A running city refuses it within 2 seconds."""
    from pricemesh.http.keys import write_keys

    keys = _read(file)
    if keys.pop(id_, None) is None:
        raise InvalidParameter(f"there is no key {id_!r} in {file}: `pricemesh keys list` shows the ids")
    write_keys(file, keys)
    print(f"revoked {id_}")


@app.command("gossip", epilog=GOSSIP_EXAMPLES)
def keys_gossip(
    id_: Annotated[str, typer.Option("--id", help="Names the secret, so that two can be in use.")] = "k1",
) -> None:
    """Make a secret with which the cities of a mesh sign; put it into gossip.secrets of every city.

    To replace it, give every city both, the old one first; then the new one first; then the new one alone."""
    from pricemesh.city.gossip_secrets import new_secret

    print(new_secret(id_))


@app.command("city", epilog=CITY_EXAMPLES)
def keys_city(
    url: Annotated[str, typer.Argument(help="The city's address, such as http://127.0.0.1:8001.")],
    key: Annotated[
        str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key with the scope read.")
    ] = None,
) -> None:
    """Print the public key of a running city, as gossip.cities of the others names it.

    A city makes its key with its database. Cities that name it take letters in its name under no other."""
    from pricemesh.client import City

    with City(url, key=key) as city:
        state = city.state()
        print(f"{state.city}={state.gossip.key}")

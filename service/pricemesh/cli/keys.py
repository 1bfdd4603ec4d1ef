"""`pricemesh keys`: who may call what."""

from pathlib import Path
from typing import Annotated

import typer

from pricemesh.cli.terminal import notes
from pricemesh.errors import InvalidParameter

app = typer.Typer(help="API keys: who may call what.", no_args_is_help=True)
KeysFile = Annotated[Path, typer.Option("--file", metavar="FILE", help="Where keys are kept.")]


@app.command("new", epilog="`pricemesh keys new --scope price,feedback --name shop`")
def keys_new(
    scope: Annotated[str, typer.Option(help="price, feedback, read, admin; several with commas.")],
    name: Annotated[str, typer.Option(help="Whose it is.")] = "",
    file: KeysFile = Path("keys.toml"),
) -> None:
    """Make a key. It is printed once; only its hash is kept. A running service reads it when restarted."""
    from pricemesh.http.keys import new_key, read_keys, write_keys

    presented, key = new_key(scope, name)
    write_keys(file, {**(read_keys(file) if file.exists() else {}), key.id: key})
    print(presented)
    notes.print(f"kept in {file} as {key.id}; this is the only time the key is shown")


@app.command("list")
def keys_list(file: KeysFile = Path("keys.toml")) -> None:
    """List the keys by id."""
    from pricemesh.http.keys import read_keys

    for key in read_keys(file).values():
        print(f"{key.id}  {','.join(sorted(key.scopes))}  {key.name}")


@app.command("revoke")
def keys_revoke(
    id_: Annotated[str, typer.Argument(metavar="ID")], file: KeysFile = Path("keys.toml")
) -> None:
    """Take a key back."""
    from pricemesh.http.keys import read_keys, write_keys

    keys = read_keys(file)
    if keys.pop(id_, None) is None:
        raise InvalidParameter(f"there is no key {id_!r} in {file}")
    write_keys(file, keys)
    print(f"revoked {id_}")


@app.command("gossip", epilog="`PRICEMESH_GOSSIP_SECRETS=$(pricemesh keys gossip)`")
def keys_gossip(
    id_: Annotated[str, typer.Option("--id", help="Names the secret, so that two can be live.")] = "k1",
) -> None:
    """Make a secret for the cities of a mesh to sign with; put it into gossip.secrets of every one.

    To change it, give every city both, the old one first; then the new one first; then the new one alone."""
    from pricemesh.city.gossip_secrets import new_secret

    print(new_secret(id_))

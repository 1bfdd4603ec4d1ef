"""The options that say where the jobs of a study run."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pricemesh.lab.jobs import Workers

WorkerCount = Annotated[
    int | None, typer.Option("--workers", min=1, metavar="N", help="Processes. [default: one a core]")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on the Dask cluster whose scheduler is at tcp://HOST:PORT. "
        "Needs pip install 'pricemesh\\[cluster]'. [default: this machine]",
    ),
]


def choose_workers(processes: int | None, cluster: str | None) -> "Workers":
    """Raises MissingExtra or InvalidParameter before anything runs."""
    from pricemesh.errors import InvalidParameter
    from pricemesh.lab.extra import require_cluster
    from pricemesh.lab.jobs import Workers

    if cluster is not None:
        require_cluster()
        if processes is not None:
            raise InvalidParameter("--workers counts processes on this machine: leave it out with --cluster")
    return Workers(processes, cluster)

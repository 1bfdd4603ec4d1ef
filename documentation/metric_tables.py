"""Tables of all metrics, from the registry of a city."""

from prometheus_client.core import Metric

from documentation.markdown import code, table
from pricemesh.http.asgi import Application


def metric_tables(app: Application) -> str:
    families = list(app.admission.metrics.registry.collect())
    own = [family for family in families if family.name.startswith("pricemesh_")]
    process = [family for family in families if not family.name.startswith("pricemesh_")]
    head = ("metric", "kind", "labels", "meaning")
    return "\n".join(
        [
            "## Of a city\n",
            table(head, map(_row, sorted(own, key=lambda family: family.name))),
            "\n## Of its process\n",
            table(head, map(_row, process)),
        ]
    )


def _row(family: Metric) -> list[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    # A family without series, such as those of peers, says its labels nowhere else.
    labels = getattr(family, "_labelnames", ())
    return [code(name), family.type, ", ".join(map(code, labels)), family.documentation]

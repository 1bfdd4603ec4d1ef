"""The suites by name."""

from pricemesh.lab.bench.core import core
from pricemesh.lab.bench.gossip import gossip
from pricemesh.lab.bench.http import http
from pricemesh.lab.bench.instructions import instructions
from pricemesh.lab.bench.peers import peers
from pricemesh.lab.bench.ratios import Say, Suite
from pricemesh.lab.bench.recovery import recovery
from pricemesh.lab.bench.simulate import simulate
from pricemesh.lab.bench.stations import stations

SUITES = {
    "core": core,
    "stations": stations,
    "instructions": instructions,
    "http": http,
    "gossip": gossip,
    "recovery": recovery,
    "simulate": simulate,
    "peers": peers,
}


def run(name: str, *, quick: bool, say: Say) -> Suite:
    return SUITES[name](quick=quick, say=say)

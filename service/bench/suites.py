"""The suites by name."""

from service.bench.core import core
from service.bench.gossip import gossip
from service.bench.http import http
from service.bench.instructions import instructions
from service.bench.peers import peers
from service.bench.ratios import Say, Suite
from service.bench.recovery import recovery
from service.bench.simulate import simulate
from service.bench.stations import stations

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

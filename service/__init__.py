"""pricemesh: prices in many cities, learned together without a central server."""

__version__ = "0.1.0"

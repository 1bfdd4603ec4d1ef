"""The version of pricemesh."""

__version__ = "0.1.0"

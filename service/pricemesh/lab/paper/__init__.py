"""Reproduces the paper's experiments: settings, measurements, a verdict on each claim, a report."""

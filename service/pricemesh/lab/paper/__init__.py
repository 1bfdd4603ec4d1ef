"""The paper's experiments, run again: settings, measurements, claims with a verdict each, a report."""

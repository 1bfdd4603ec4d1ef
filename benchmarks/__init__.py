"""Benchmarks beyond `pricemesh bench`: ratios to named baselines that are measured in the same run."""

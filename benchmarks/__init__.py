"""What things cost, as ratios to named baselines measured in the same run."""

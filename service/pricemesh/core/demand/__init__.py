"""The parts of the demand model: its features, a sale as numbers, the curves of all arms, prior variances."""

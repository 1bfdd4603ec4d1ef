"""`pricemesh bench`: every figure is a ratio to a baseline measured in turn with it, in the same run."""

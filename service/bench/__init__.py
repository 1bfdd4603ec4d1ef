"""`pricemesh bench`: every figure a ratio to a baseline that was measured in turn with it, in the same run."""

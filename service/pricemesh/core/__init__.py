"""The mathematics: pure functions and learners on numpy arrays; no clock, no I/O, no globals."""

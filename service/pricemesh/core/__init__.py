"""The mathematics of pricemesh: functions and learners on numpy arrays. No clock, no I/O, no globals."""

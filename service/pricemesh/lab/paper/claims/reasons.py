"""Reasons that several claims share. The report prints them word for word."""

WEIGHTS_BY_COUNTS = (
    "An average of the cities' estimates is not the estimate from all data: weights by counts and "
    "contexts are not "
    "the weights by information that least variance asks for."
)
SAME_MODEL = (
    "Shared LinUCB as the paper defines it keeps each city's local parameters apart: it fits the "
    "same model with all "
    "data, so no advantage in estimation is to be expected over it. Where signal is weak, whoever "
    "explores less or "
    "shrinks more can still win."
)
SGD_LEARNS_SLOWLY = (
    "A gradient step uses an observation once, a regression for good; and a diagonal of squared "
    "gradients is not the "
    "standard error of its estimate."
)

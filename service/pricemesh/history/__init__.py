"""A city's years: data out of a city and into it, in files that other programs read."""

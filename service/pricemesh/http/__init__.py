"""HTTP in front of a city: requests read, admitted and answered."""

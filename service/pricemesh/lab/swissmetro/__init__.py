"""A world from real choices: Swiss travellers who were asked if they would take the Swissmetro at a fare.

`answers` has the table, `world` lets its travellers meet a policy, `replay` judges a policy on the answers
themselves. README.md names the source. The fitted chances are made by benchmarks/swissmetro_truth.py."""

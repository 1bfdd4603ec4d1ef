"""Makes what the documentation says of the code from the code: settings, calls, commands, metrics, llms.txt.

`python -m documentation` writes it into docs/; `mkdocs build`, with `hooks.py`, makes the site. Only tests
import this package.
"""

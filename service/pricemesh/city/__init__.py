"""One city: settings, decisions, guardrails, and the loop that commits before it answers."""

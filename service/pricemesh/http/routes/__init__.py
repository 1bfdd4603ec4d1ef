"""The routes that FastAPI serves, one file a topic. Prices, feedback and gossip do not pass through here."""

"""What a city keeps: tables, the database that owns them, and the one writer that commits in groups."""

"""A city's database: tables, commands that write them, reads; SQLite or Postgres behind one interface."""

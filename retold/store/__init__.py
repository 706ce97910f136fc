"""SQL is the truth: records, sessions, turn decisions and their audit trail, on SQLite or PostgreSQL."""

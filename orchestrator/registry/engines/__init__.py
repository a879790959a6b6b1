"""Engines of SQLite and PostgreSQL: opening them, their differences, quick writing, and their errors."""

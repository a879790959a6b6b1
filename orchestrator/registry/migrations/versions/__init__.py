"""One file per revision of the tables."""

"""Queries of runs: the language, its fields and values, the plans of SQL, and tables of what was found."""

"""Carrying specs out: the run's record and log around a kind's work, pipelines of stages, submitted jobs."""

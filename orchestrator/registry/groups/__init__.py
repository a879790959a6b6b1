"""Groups of runs that differ only in their seed: their records, comparison, leaderboard and predictions."""

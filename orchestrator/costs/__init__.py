"""Costs of runs: processor time, GPU time, energy and money; measured while they work, derived afterwards, limited."""

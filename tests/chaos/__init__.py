"""Faults inflicted on real runs on a real Ray of several nodes, with exact accounts afterwards.

    make chaos MINUTES=30 SEED=1

An episode is one run of a small spec as a user would start it, in a process of its own, to which one fault happens at a
place that a seeded generator chooses. What broke is then resumed, and the accounts are compared with those of the same
spec that nothing happened to: weights, every measurement, every trial, no process and no half-written file left.
"""

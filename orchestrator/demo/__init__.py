"""A small generated world behind `orchestrator demo`: its text, its labeled tasks, and sentences to try a model on.

Everything is generated, and a pure function of the seed.
"""

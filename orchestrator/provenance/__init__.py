"""Capture of all that a run is made with where its driver starts: code, command, versions, machine.

Nothing here needs more than the standard library, starts Ray or loads torch, and nothing raises: what cannot be found
out is left out, with the reason where it is the code.
"""

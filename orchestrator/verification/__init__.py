"""Proof on a person's own machine that a run which is killed and resumed ends as one that nothing interrupts."""

"""Statistics of scores: what a few seeds show, and whether two groups of them differ by more than luck.

Every function is pure: the same numbers in give the same frozen values out. `summary` needs no numpy.
"""

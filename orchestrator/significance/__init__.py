"""Statistics of scores: what a few seeds show, and whether two groups of them differ by more than luck.

Every function is pure: the same numbers in give the same frozen values out. A file for each method:

    summary             mean, spread, interval of the mean
    welch               difference of two means, the groups' seeds being independent
    paired_permutation  difference of two groups with the same seeds
    bootstrap           intervals by drawing again, from seeds or from examples
    rank_correlation    Spearman's correlation of examples that are drawn again
    mcnemar             two models' right and wrong answers to the same examples
    many_comparisons    p-values of several comparisons, corrected
    sample_size         number of seeds that would settle a difference
    distributions       Student's t and the normal distribution, which the others rest on

Only the files that draw again need numpy.
"""

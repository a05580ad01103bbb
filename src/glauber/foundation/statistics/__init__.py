"""Estimates and their intervals, in one place; docs/statistics.md says which methods and why.

Snapshots of one chain depend on each other, chains do not: an interval is that of the spread of
whole chains, by a method that keeps its level with 4 to 30 of them. Fewer than three allow none.
"""

from glauber.foundation.statistics.chains import Estimates, Statistic, jackknife, rank_correlation
from glauber.foundation.statistics.means import (
    CONFIDENCE,
    MIN_CHAINS,
    Estimate,
    Floats,
    clopper_pearson,
    clustered_mean,
    clustered_proportion,
    difference,
    mean_over_chains,
    normal_quantile,
    power,
    proportion,
    ratio_over_chains,
    smallest_effect,
    standard_error,
    t_quantile,
)
from glauber.foundation.statistics.quantiles import Quantile, quantile, quantile_ratio
from glauber.foundation.statistics.times import MedianTime, clustered_median_time, median_time

__all__ = [
    "CONFIDENCE",
    "MIN_CHAINS",
    "Estimate",
    "Estimates",
    "Floats",
    "MedianTime",
    "Quantile",
    "Statistic",
    "clopper_pearson",
    "clustered_mean",
    "clustered_median_time",
    "clustered_proportion",
    "difference",
    "jackknife",
    "mean_over_chains",
    "median_time",
    "normal_quantile",
    "power",
    "proportion",
    "quantile",
    "quantile_ratio",
    "rank_correlation",
    "ratio_over_chains",
    "smallest_effect",
    "standard_error",
    "t_quantile",
]

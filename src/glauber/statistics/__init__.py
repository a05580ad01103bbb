"""How sure is a number? One place for every interval; docs/statistics.md says which and why.

Snapshots of one chain depend on each other, chains do not: an interval is that of the spread of
whole chains, by a method that keeps its level with 4 to 30 of them. Fewer than three allow none.
"""

from glauber.statistics.chains import (
    Estimate,
    Statistic,
    over_chains,
    rank_correlation,
)
from glauber.statistics.means import (
    FEW,
    LEVEL,
    Floats,
    Measured,
    difference,
    mean_by_chain,
    mean_over_chains,
    normal_reach,
    power,
    ratio_over_chains,
    share,
    share_by_chain,
    share_interval,
    smallest_effect,
    standard_error,
    student_reach,
)
from glauber.statistics.times import MedianTime, median_time, median_time_by_chain

Mean = Measured

__all__ = [
    "FEW",
    "LEVEL",
    "Estimate",
    "Floats",
    "Mean",
    "Measured",
    "MedianTime",
    "Statistic",
    "difference",
    "mean_by_chain",
    "mean_over_chains",
    "median_time",
    "median_time_by_chain",
    "normal_reach",
    "over_chains",
    "power",
    "rank_correlation",
    "ratio_over_chains",
    "share",
    "share_by_chain",
    "share_interval",
    "smallest_effect",
    "standard_error",
    "student_reach",
]

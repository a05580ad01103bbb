"""How far can a share seen in a sample be from the true one?"""

from scipy.stats import beta


def share_interval(count: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of Clopper and Pearson: it holds the true share with at least that confidence.

    Each side errs with at most half of the rest, so each end is also a bound by itself.
    """
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, total - count + 1))
    high = 1.0 if count == total else float(beta.ppf(1 - tail, count + 1, total - count))
    return low, high

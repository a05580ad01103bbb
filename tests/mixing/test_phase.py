"""Crossovers and medians against curves that are known."""

import numpy as np
import pytest
from scipy.special import expit

from glauber.errors import GlauberError
from glauber.figures.mixing import plot_phase
from glauber.mixing.crossover import fit, scaling
from glauber.mixing.phase import phase_diagram
from glauber.statistics import median_time

TEMPERATURES = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0]
ENDS = (0.5, 3.0)


def drawn(middle, width, n_pairs, generator):
    """Pairs that met at each temperature, for a known curve."""
    chances = expit((np.log(TEMPERATURES) - np.log(middle)) / width)
    return [(int(n), n_pairs) for n in generator.binomial(n_pairs, chances)]


@pytest.mark.parametrize(("middle", "width"), [(1.1, 0.1), (1.7, 0.25), (2.2, 0.05)])
def test_the_interval_covers_a_known_crossover(middle, width):
    """95% intervals: of 40, at least 32 cover (a chance of 1e-4 to fail at 95%)."""
    generator = np.random.default_rng(0)
    covered = widths = 0
    for _ in range(40):
        found = fit(8, TEMPERATURES, drawn(middle, width, 24, generator), ends=ENDS).crossover
        low, high = found.interval
        covered += low <= middle <= high
        widths += found.width_interval[0] <= width <= found.width_interval[1]
        assert low <= found.temperature <= high
    assert covered >= 32
    # Narrower than the spacing of the temperatures, the width's own interval is too short.
    assert widths >= (32 if width > 0.05 else 26)


def test_many_pairs_give_the_curve_back():
    generator = np.random.default_rng(1)
    found = fit(8, TEMPERATURES, drawn(1.4, 0.2, 100_000, generator), ends=ENDS).crossover
    assert found.temperature == pytest.approx(1.4, rel=0.01)  # the grid's step is 0.3%
    assert found.width == pytest.approx(0.2, rel=0.06)  # the grid's step is 6%


def test_a_jump_is_known_only_as_a_bracket():
    """None met at 1.25, all at 1.5: every temperature between fits; a step has width 0."""
    met = [(0, 12)] * 4 + [(12, 12)] * 4
    found = fit(8, TEMPERATURES, met, ends=ENDS).crossover
    low, high = found.interval
    assert low == pytest.approx(1.25, rel=0.01) and high == pytest.approx(1.5, rel=0.01)
    assert 1.3 < found.temperature < 1.45
    assert found.width == 0.0 and found.width_interval[0] == 0.0


@pytest.mark.parametrize("met", [0, 5])
def test_no_crossover_is_not_invented(met):
    found = fit(8, TEMPERATURES, [(met, 5)] * 8, ends=ENDS).crossover
    assert found.temperature is None and found.interval is None


@pytest.mark.parametrize(("rise", "sharpening"), [(0.5, 0.5), (0.3, 0.0)])
def test_exponents_over_lengths_are_recovered(rise, sharpening):
    generator = np.random.default_rng(2)
    fits = [
        fit(n, TEMPERATURES,
            drawn(1.0 * (n / 8) ** rise, 0.3 * (n / 8) ** -sharpening, 4000, generator), ends=ENDS)
        for n in (8, 16, 32)
    ]  # fmt: skip
    found = scaling(fits)
    assert found.rise_interval[0] <= rise <= found.rise_interval[1]
    assert found.sharpening_interval[0] <= sharpening <= found.sharpening_interval[1]
    assert abs(found.rise - rise) < 0.05 and abs(found.sharpening - sharpening) < 0.15


def test_the_median_keeps_censored_pairs():
    """By hand: 1, 2, 3, 4 met; with 6 apart at 5 the median is beyond, with 2 apart it is 3."""
    assert median_time([1, 2, 3, 4] + [5] * 6, [True] * 4 + [False] * 6).value is None
    assert median_time([1, 2, 3, 4, 5, 5], [True] * 4 + [False] * 2).value == 3
    # Censored in between: at 2 one of two is left after 3/4 of all, so 3/8 stay; by hand.
    found = median_time([1, 1.5, 1.5, 2, 2.5], [True, False, False, True, False])
    assert found.value == 2  # survival 0.8 after 1, then 0.8 / 2 = 0.4 after 2
    none = median_time([7, 7], [False, False])
    assert (none.value, none.interval) == (None, (None, None))


def test_medians_of_exponential_times_are_covered():
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(60):
        times = generator.exponential(100, 40)
        seen = np.minimum(times, 200)
        found = median_time(seen, times <= 200)
        low, high = found.interval
        covered += low <= 100 * np.log(2) <= (high or np.inf)
    assert covered >= 50


def test_the_diagram_and_its_picture():
    cells = [
        {"temperature": t, "length": n, "steps": 9, "times": [9] * 4, "met": [t > n / 4] * 4}
        for t in (0.5, 1.5, 2.5) for n in (4, 8)
    ]  # fmt: skip
    diagram = phase_diagram(cells)
    assert diagram.lengths == [4, 8] and diagram.temperatures == [0.5, 1.5, 2.5]
    assert [0.5 < c.temperature < 2.5 for c in diagram.crossovers] == [True, True]
    assert diagram.crossovers[0].temperature < diagram.crossovers[1].temperature
    assert diagram.scaling.rise > 0
    heat = plot_phase(diagram).data[0]
    np.testing.assert_array_equal(np.array(heat.z), [[0, 1, 1], [0, 0, 1]])
    with pytest.raises(GlauberError, match="no cell"):
        phase_diagram([])

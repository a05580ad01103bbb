"""Crossovers and medians against curves that are known."""

import numpy as np
import pytest
from scipy.special import expit

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import median_time
from glauber.interfaces.plots.mixing import plot_phase
from glauber.studies.mixing.crossover import fit_crossover as fit
from glauber.studies.mixing.crossover import fit_exponents as scaling
from glauber.studies.mixing.phase import phase_diagram, threshold_ratio

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


def test_few_pairs_widen_the_interval_and_one_allows_none():
    """Four pairs a cell: of 60 intervals at 95%, at least 51 (a chance of 2e-3 to fail)."""
    generator = np.random.default_rng(7)
    inside = 0
    for _ in range(60):
        low, high = fit(
            8, TEMPERATURES, drawn(1.4, 0.15, 4, generator), ends=ENDS
        ).crossover.interval
        inside += (low or 0) <= 1.4 <= (high or np.inf)
    assert inside >= 51
    alone = fit(8, TEMPERATURES, drawn(1.4, 0.15, 1, generator), ends=ENDS).crossover
    assert alone.interval == (None, None)


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
    assert found.temperature is None and found.width_interval == (None, None)
    # None met: it lies higher, and nothing bounds it there; all met: lower.
    low, high = found.interval
    assert (high is None and low > 1.5) if met == 0 else (low is None and high < 1.5)


@pytest.mark.parametrize(("rise", "sharpening"), [(0.5, 0.5), (0.3, 0.0)])
def test_exponents_over_lengths_are_recovered(rise, sharpening):
    generator = np.random.default_rng(2)
    fits = [
        fit(
            n,
            TEMPERATURES,
            drawn(1.0 * (n / 8) ** rise, 0.3 * (n / 8) ** -sharpening, 4000, generator),
            ends=ENDS,
        )
        for n in (8, 16, 32)
    ]
    found = scaling(fits)
    assert found.rise_interval[0] <= rise <= found.rise_interval[1]
    assert found.sharpening_interval[0] <= sharpening <= found.sharpening_interval[1]
    assert abs(found.rise - rise) < 0.05 and abs(found.sharpening - sharpening) < 0.15


def test_exponents_that_nothing_bounds_are_open():
    """Jumps between the same two temperatures: every width fits, and so does every sharpening."""
    met = [(0, 12)] * 4 + [(12, 12)] * 4
    found = scaling([fit(n, TEMPERATURES, met, ends=ENDS) for n in (8, 16)])
    assert found.sharpening_interval == (None, None)
    assert None not in found.rise_interval and found.rises is None
    # A length whose pairs never meet has its crossover somewhere above: no upper end.
    high = scaling(
        [fit(8, TEMPERATURES, met, ends=ENDS), fit(16, TEMPERATURES, [(0, 12)] * 8, ends=ENDS)]
    )
    assert high.rise_interval[1] is None and high.rise_interval[0] > 0 and high.rises is True


def test_a_rise_beyond_four_is_not_cut():
    """Lengths that hardly differ: from 8 to 9 tokens the crossover doubles, an exponent of 5.9."""
    generator = np.random.default_rng(4)
    fits = [
        fit(n, TEMPERATURES, drawn(t, 0.1, 400, generator), ends=ENDS)
        for n, t in ((8, 0.9), (9, 1.8))
    ]
    found = scaling(fits)
    truth = np.log(2) / np.log(9 / 8)
    assert found.rise_interval[0] < truth < found.rise_interval[1] and found.rise > 5


def cells_of(rate, *, steps, lengths=(6, 12, 24), pairs=400, seed=5):
    """Cells of pairs whose times are exponential, with means n * rate(T) sweeps."""
    generator = np.random.default_rng(seed)
    for n in lengths:
        for t in TEMPERATURES:
            times = np.ceil(generator.exponential(n * rate(t), pairs)).astype(int)
            seen = np.minimum(times, steps)
            yield {
                "temperature": t,
                "length": n,
                "steps": steps,
                "times": seen.tolist(),
                "met": (times <= steps).tolist(),
            }


def test_a_rise_that_is_only_the_budget_is_seen_to_be_one():
    """Times that are the same in sweeps at every length: at equal steps the boundary rises."""
    diagram = phase_diagram(cells_of(lambda t: 40 / t**6, steps=240))
    assert diagram.at_steps.verdict == "rises" and diagram.boundary is diagram.at_steps
    low, high = diagram.at_sweeps.scaling.rise_interval
    assert diagram.at_sweeps.verdict == "cannot tell" and low < 0 < high and high - low < 0.1
    assert diagram.at_sweeps.budget == 10 and diagram.at_steps.budget == 240
    # At equal steps: exp(-240 / (n 40) T^6) = 1/2, so T_c goes as n^(1/6).
    low, high = diagram.at_steps.scaling.rise_interval
    assert low - 0.03 < 1 / 6 < high + 0.03  # the curve is not quite a logistic one
    cell = diagram.cell(1.0, 24)
    hot = diagram.cell(2.0, 24)
    assert hot.median_sweeps == hot.median.value / 24
    stopped = cell.truncated_at(100)
    assert stopped.steps == 100 and sum(stopped.met) == sum(
        m and t <= 100 for m, t in zip(cell.met, cell.times, strict=True)
    )


def test_a_budget_of_sweeps_is_stopped_for_equal_steps():
    cells = [
        {"temperature": t, "length": n, "steps": 9 * n, "times": [3 * n], "met": [True]}
        for t in (0.5, 2.0)
        for n in (2, 8)
    ]
    diagram = phase_diagram(cells)
    assert diagram.boundary is diagram.at_sweeps and diagram.at_sweeps.budget == 9
    assert diagram.at_steps.budget == 18
    assert [sum(c.truncated_at(18).met) for c in diagram.cells] == [1, 0, 1, 0]


def test_the_threshold_over_the_crossover():
    """Against simulation: log-normal thresholds over a crossover that is itself measured."""
    generator = np.random.default_rng(6)
    covered = 0
    for _ in range(50):
        crossover = fit(8, TEMPERATURES, drawn(1.4, 0.2, 50, generator), ends=ENDS).crossover
        thresholds = 14 * np.exp(generator.normal(0, 0.2, size=5))
        found = threshold_ratio(thresholds.tolist(), crossover)
        covered += found.interval[0] <= 10 <= found.interval[1]
    assert covered >= 42  # of 50 at 95%: a chance of 1e-3 to fail
    few = threshold_ratio([14.0, 15.0], crossover)
    assert few.interval == (None, None) and few.ratio == pytest.approx(10, rel=0.3)
    for thresholds in ([0.0, 1, 1], [np.inf, 1, 1]):
        assert threshold_ratio(thresholds, crossover).ratio is None
    unseen = fit(8, TEMPERATURES, [(0, 5)] * 8, ends=ENDS).crossover
    assert "no crossover to set it against" in threshold_ratio([1.0, 2, 3], unseen).line


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
        for t in (0.5, 1.5, 2.5)
        for n in (4, 8)
    ]
    diagram = phase_diagram(cells)
    assert diagram.lengths == [4, 8] and diagram.temperatures == [0.5, 1.5, 2.5]
    assert [0.5 < c.temperature < 2.5 for c in diagram.crossovers] == [True, True]
    assert diagram.crossovers[0].temperature < diagram.crossovers[1].temperature
    assert diagram.scaling.rise > 0
    heat = plot_phase(diagram).data[0]
    np.testing.assert_array_equal(np.array(heat.z), [[0, 1, 1], [0, 0, 1]])
    with pytest.raises(GlauberError, match="no cell"):
        phase_diagram([])

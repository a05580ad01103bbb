"""What the pictures of topics show."""

import numpy as np

from glauber.landscape.prefixes import PrefixStudy, Pull
from glauber.landscape.topics import TopicScores
from glauber.plots.prefixes import plot_prefixes
from glauber.plots.recurrence import plot_recurrence
from glauber.plots.topic_river import plot_topic_river
from glauber.statistics import Mean

VALUES = np.random.default_rng(0).dirichlet([1, 1, 1], (6, 5))  # chains, looks, labels
FOUND = TopicScores(np.arange(5) * 4, VALUES, ("a", "b", "c"), "by hand", 4)


def test_the_river_is_as_wide_as_one():
    branches = plot_topic_river(FOUND, first="c").data
    assert [branch.name for branch in branches] == ["c", "a", "b"]
    assert np.allclose(sum(np.array(branch.y) for branch in branches), 1)
    assert np.allclose(branches[0].y, VALUES[:, :, 2].mean(axis=0))
    assert len({branch.fillcolor for branch in branches}) == 3


def test_the_tracked_label_by_seed():
    seeds = ["b", "b", "c", "c", "c", "x"]
    lines = plot_recurrence(FOUND, "a", seeds=seeds)
    assert [line.name for line in lines.data] == ["from b", "from c", "from x"]
    assert np.allclose(lines.data[1].y, VALUES[2:5, :, 0].mean(axis=0))
    river = {branch.name: branch.fillcolor for branch in plot_topic_river(FOUND).data}
    assert lines.data[0].line.color == river["b"]
    assert lines.layout.shapes[0].y0 == FOUND.baseline
    alone = plot_recurrence(FOUND, "a").data
    assert len(alone) == 7 and np.allclose(alone[-1].y, VALUES[:, :, 0].mean(axis=0))


def test_pulls_that_are_sure_stand_out():
    pull = {"a": Mean(0.2, (0.1, 0.3)), "b": Mean(-0.1, (-0.3, 0.1))}
    one = Pull("They said", pull, pull, [], [])
    study = PrefixStudy(("a", "b"), pull, [one], "by hand", 4, 3)
    (heat,) = plot_prefixes(study).data
    assert heat.z == ([0.2, -0.1],) or [list(row) for row in heat.z] == [[0.2, -0.1]]
    assert [list(row) for row in heat.text] == [["<b>+0.20</b>", "-0.10"]]
    assert one.towards == ["a"]

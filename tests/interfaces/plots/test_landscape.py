"""What the pictures of topics show."""

import numpy as np

from glauber.foundation.statistics import Estimate
from glauber.interfaces.plots.landscape import (
    plot_prefix_topics,
    plot_prefix_words,
    plot_recurrence,
    plot_topic_river,
)
from glauber.runs.distinctive_words import WordContrast
from glauber.studies.landscape.prefixes import Contrast, PairedMeans
from glauber.studies.landscape.scorers import TopicScores

VALUES = np.random.default_rng(0).dirichlet([1, 1, 1], (6, 5))  # chains, snapshots, labels
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


def contrast(first="They said", second=""):
    score = Estimate(0.4, (0.2, 0.6))
    topics = {
        "a": PairedMeans(score, score, Estimate(0.2, (0.1, 0.3))),
        "b": PairedMeans(score, score, Estimate(-0.1, (-0.3, 0.1))),
        "c": PairedMeans(score, score, Estimate(-0.3, (-0.5, -0.1))),
    }
    words = [WordContrast("up", 1.0, 0.2, (9, 1), (3, 1), True)]
    others = [WordContrast("down", -0.5, 0.4, (1, 4), (1, 2), False)]
    return Contrast(first, second, topics, {}, {}, words, others, (["x"], ["y"]))


def test_topics_of_both_directions_stand_out():
    one = contrast()
    assert one.differing_topics == ["c", "a"]  # the largest first, whichever way it goes
    sure, other = plot_prefix_topics(one, "95%").data
    assert dict(zip(sure.y, sure.x, strict=True)) == {"c": -0.3, "a": 0.2}
    assert np.allclose(sure.error_x.array, [0.2, 0.1]) and list(other.y) == ["b"]


def test_words_of_both_prefixes_are_drawn():
    sure, other = plot_prefix_words(contrast("She said", "He said")).data
    assert list(sure.y) == ["up"] and list(other.y) == ["down"]
    assert other.x[0] == -0.5


def test_a_long_title_has_room():
    """The title's lines fit between the top of the picture and its axes."""
    figure = plot_prefix_topics(
        contrast("a prefix of many words " * 8, "another " * 20), "95% " * 40
    )
    lines = figure.layout.title.text.count("<br>") + 1
    assert figure.layout.margin.t >= 20 * lines

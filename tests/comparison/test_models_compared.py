"""Two tiny models from the same starts, each figure against the study that makes it."""

import numpy as np
import pytest

from conftest import TEXTS, make_model, make_tokenizer
from glauber.comparison.models import compare_models
from glauber.compatibility.rectangles import rectangles
from glauber.conditionals.masked_lm import MaskedLM
from glauber.errors import GlauberError
from glauber.landscape.topics import Scorer
from glauber.plots.comparison import comparison_table, plot_comparison, plot_topics_by_model
from glauber.sampling.sample import sample


def score(texts):
    share = np.array([text.count("t") / max(1, len(text)) for text in texts])
    return np.stack([share, 1 - share], axis=1)


SCORER = Scorer("letters", ("t", "other"), score)


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "other"
    make_model("distilbert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def compared(tiny_folder, other_folder):
    return compare_models(
        [str(tiny_folder), str(other_folder)],
        SCORER,
        texts=TEXTS,
        chains=6,
        length=5,
        steps=60,
        seed=4,
        rectangles=12,
        top=10,
        every=20,
        traps=lambda model, run: {"number": run.n_chains},
    )


def test_each_figure_is_that_of_its_study(compared, tiny_folder):
    first, second = compared.rows
    model = MaskedLM.load(str(tiny_folder))
    found = rectangles(model, TEXTS[:6], length=5, count=12, seed=4, top=10)
    assert first.rectangles["mean"] == pytest.approx(float(found.delta.mean()))
    run = sample(model, TEXTS, steps=60, chains=6, length=5, seed=4)
    assert first.changed.value == pytest.approx(float(run.read("changed").any(axis=2).mean()))
    ends = score([run.text(chain) for chain in range(6)])
    assert first.topics_end["t"].value == pytest.approx(ends[:, 0].mean())
    assert first.texts == [run.text(chain) for chain in range(3)]
    assert first.traps == {"number": 6} and "steps:60" in first.signature
    # The same starts, another model: equal at 0, not behind it.
    assert first.topics_start == second.topics_start
    assert first.topics_end != second.topics_end
    assert first.rectangles["mean"] != second.rectangles["mean"]


def test_the_pictures_hold_the_figures(compared):
    dots = plot_comparison(compared).data
    assert [trace.x[0] for trace in dots] == pytest.approx(
        [
            compared.rows[0].rectangles["mean"],
            compared.rows[0].entropy_production.rate,
            compared.rows[0].changed.value,
        ]
    )
    assert all((np.array(trace.error_x.array) >= 0).all() for trace in dots)
    bars = plot_topics_by_model(compared).data
    assert np.allclose(sum(np.array(bar.x) for bar in bars), 1)
    table = comparison_table(("model", "Delta"), [("a", "1"), ("b", "2")]).data[0]
    assert [list(column) for column in table.cells.values] == [["a", "b"], ["1", "2"]]


def test_one_model_and_one_chain_are_refused(tiny_folder):
    with pytest.raises(GlauberError, match="at least two models"):
        compare_models([str(tiny_folder)], SCORER)
    with pytest.raises(GlauberError, match="named once"):
        compare_models(["a", "a"], SCORER)
    with pytest.raises(GlauberError, match="one chain only"):
        compare_models(["a", "b"], SCORER, chains=1)

import errno

import numpy as np
import pytest

from glauber.foundation import disk
from glauber.foundation.errors import GlauberError
from glauber.runs import folder_log
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.sampling.advance import Session
from glauber.sampling.reopened import reopen
from glauber.sampling.sample import extend, resume, sample
from run_bytes import contents, values


def test_an_extended_run_equals_a_long_one(tiny_folder, texts, tmp_path):
    short = sample(str(tiny_folder), texts, steps=50, seed=2, out=tmp_path / "short")
    assert short.finished and short.steps == 50
    longer = extend(short.folder, steps=130)
    whole = sample(str(tiny_folder), texts, steps=130, seed=2, out=tmp_path / "whole")
    assert values(longer.folder) == values(whole.folder)
    longer.verify()


def test_a_stop_keeps_every_step(tiny_folder, texts, tmp_path):
    class Stopping(Session):
        def count(self, *args):
            super().count(*args)
            self.stopping = self.updates >= 33 * len(texts)

    how = {"steps": 90, "seed": 2}
    stopped = sample(str(tiny_folder), texts, out=tmp_path / "run", session=Stopping(), **how)
    assert stopped.steps == 33 and not stopped.finished
    whole = sample(str(tiny_folder), texts, steps=90, seed=2, out=tmp_path / "whole")
    assert contents(resume(stopped.folder).folder) == contents(whole.folder)


def test_the_tokens_after_any_step(tiny_folder, tmp_path, monkeypatch, texts):
    """They are those of a plain replay from the start, also across segments."""
    monkeypatch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: 16)
    run = sample(str(tiny_folder), texts, steps=40, seed=6, out=tmp_path / "run")
    sites, drawn, tokens = run.read("site"), run.read("token"), run.tokens(0)
    chains = np.arange(run.n_chains)
    for step in range(41):
        np.testing.assert_array_equal(run.tokens(step), tokens)
        if step < 40:
            tokens[chains, sites[:, step, 0]] = drawn[:, step, 0]


def test_recorded_figures_are_the_conditionals(tiny_folder, texts, tmp_path):
    """Log-probabilities and entropies of the events, worked out again from the states."""
    import torch

    from glauber.models.base import Restricted, log_probs
    from glauber.models.masked_lm import MaskedLM

    run = sample(str(tiny_folder), texts, steps=40, temperature=0.8, seed=5, out=tmp_path / "run")
    model = MaskedLM.load(str(tiny_folder))
    laws = Restricted(model, model.vocabulary.proposable())
    sites, tokens = run.read("site"), run.read("token")
    for step in (0, 7, 39):
        before, after = torch.from_numpy(run.tokens(step)), torch.from_numpy(run.tokens(step + 1))
        site = torch.from_numpy(sites[:, step]).long()
        law = log_probs(laws, before, site, temperature=0.8)[:, 0]
        new, old = after.gather(1, site), before.gather(1, site)
        np.testing.assert_array_equal(new[:, 0], tokens[:, step, 0])
        np.testing.assert_array_equal((new != old)[:, 0], run.read("changed")[:, step, 0])
        stored = {name: run.read(name)[:, step] for name in ("log_prob_new", "log_prob_old")}
        np.testing.assert_allclose(stored["log_prob_new"], law.gather(1, new), rtol=1e-6)
        np.testing.assert_allclose(stored["log_prob_old"], law.gather(1, old), rtol=1e-6)
        entropy = torch.distributions.Categorical(logits=law).entropy()
        np.testing.assert_allclose(run.read("entropy")[:, step, 0], entropy, rtol=1e-5)


def test_two_writers_are_refused(tiny_folder, texts, tmp_path):
    run = sample(str(tiny_folder), texts, steps=5, out=tmp_path / "run")
    with FolderLog(run.folder, write=True), pytest.raises(GlauberError, match="another process"):
        extend(run.folder, steps=9)
    assert extend(run.folder, steps=9).steps == 9


def test_another_model_under_the_same_name_is_refused(tiny_folder, texts, tmp_path):
    import shutil

    import conftest

    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    run = sample(str(folder), texts, steps=5, out=tmp_path / "run")
    conftest.make_model(scale=9.0).save_pretrained(folder)
    with pytest.raises(GlauberError, match="not the model that made the run"):
        reopen(run, steps=9)


def test_a_full_disk_keeps_what_was_committed(tiny_folder, texts, tmp_path, monkeypatch):
    run = sample(str(tiny_folder), texts, steps=20, seed=2, out=tmp_path / "run")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "flush_to_disk", full)
        with pytest.raises(GlauberError, match="disk is full"):
            extend(run.folder, steps=40)
    run.verify()
    assert Run(run.folder).steps == 20 and not list(run.folder.rglob(".*"))
    whole = sample(str(tiny_folder), texts, steps=40, seed=2, out=tmp_path / "whole")
    assert values(extend(run.folder, steps=40).folder) == values(whole.folder)

"""sample, resume and extend as Python calls them."""

import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

import conftest
import glauber
from glauber.foundation.errors import GlauberError
from glauber.runs import folder_log
from glauber.sampling.advance import Session
from glauber.sampling.sample import cost_line, plan


class Own:
    """A rule of one's own: neighbours like to be equal."""

    vocab_size = 3

    def scores(self, tokens, sites, candidates=None):
        padded = torch.nn.functional.pad(tokens, (1, 1), value=-1)
        beside = torch.stack([padded.gather(1, sites), padded.gather(1, sites + 2)], dim=-1)
        found = (beside[..., None] == torch.arange(3)).sum(dim=2).float()
        return found if candidates is None else found.gather(-1, candidates)


def test_a_signature_tells_starts_apart(tiny_folder, texts, tmp_path):
    """Texts, their number and their frozen sites; not where the run is stored."""
    options = dict(steps=2, chains=2, length=5)
    run = glauber.sample(str(tiny_folder), texts[:2], out=tmp_path / "r", **options)
    assert glauber.Run(run.folder).signature == run.signature
    assert glauber.sample(str(tiny_folder), texts[:2], **options).signature == run.signature
    others = [
        glauber.sample(str(tiny_folder), texts[1:3], **options),
        glauber.sample(str(tiny_folder), texts[:2], freeze=[0], **options),
        glauber.sample(str(tiny_folder), texts[:2], **(options | {"seed": 1})),
    ]
    assert len({run.signature, *(other.signature for other in others)}) == 4


def test_temperatures_of_each_chain(tiny_folder, texts, tmp_path):
    """A chain at its own temperature is the chain of a run at that temperature."""
    heats = [0.3, 1.0, 2.0]
    options = {"steps": 30, "seed": 5, "chains": 3}
    run = glauber.sample(str(tiny_folder), texts, temperature=heats, out=tmp_path / "r", **options)
    assert run.temperatures.tolist() == heats and run.spec.temperature == heats
    assert "temperature:0.3,1,2" in run.signature
    assert glauber.Run(run.folder).temperatures.tolist() == heats
    for chain, heat in enumerate(heats):
        alone = glauber.sample(str(tiny_folder), texts, temperature=heat, **options)
        np.testing.assert_array_equal(alone.read("token")[chain], run.read("token")[chain])
    longer = glauber.extend(run, steps=40)
    assert longer.temperatures.tolist() == heats and longer.steps == 40
    assert run.frame()["temperature"].tolist() == heats


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": 2.5}, "whole number"),
        ({"steps": True}, "whole number"),
        ({"prefix": ["the cat"]}, "one text"),
        ({"device": "cuda:7"}, "cannot be used"),
        ({"dtype": "float16x"}, "dtype"),
        ({"dtype": "bfloat16"}, "bfloat16 was requested"),
        ({"temperature": [1.0, 2.0]}, "2 temperatures"),
        ({"temperature": "hot"}, "must be a number"),
        ({"batch_size": 0}, "at least 1"),
        ({"texts": []}, "text"),
    ],
)
def test_a_failed_start_leaves_nothing(wrong, said, tiny_folder, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = glauber.load(str(tiny_folder), device="cpu")
    asked = {"texts": texts, "steps": 5, "chains": 3} | wrong
    for out in ({}, {"out": tmp_path / "run"}):
        with pytest.raises(GlauberError, match=said):
            glauber.sample(model, **asked, **out)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_fails_at_its_first_step_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Broken(Own):
        fingerprint, left = "x", 4

        def scores(self, tokens, sites, candidates=None):
            if tokens.shape[1] == 5:
                raise ValueError("broken")
            return super().scores(tokens, sites, candidates)

    for out in ({}, {"out": tmp_path / "run"}):
        with pytest.raises(ValueError, match="broken"):
            glauber.sample(Broken(), ["01201"], steps=5, **out)
    assert list(tmp_path.iterdir()) == []


def test_a_rule_of_ones_own_is_sampled_stored_and_resumed(tmp_path):
    rule = Own()
    whole = glauber.sample(rule, ["0120", "2210"], steps=30, seed=2, out=tmp_path / "whole")
    run = glauber.sample(rule, ["0120", "2210"], steps=12, seed=2, out=tmp_path / "run")
    longer = glauber.extend(run, steps=30, model=rule)
    np.testing.assert_array_equal(longer.read("token"), whole.read("token"))
    assert glauber.show(run).snapshots and run.text(0)

    class Other(Own):
        def scores(self, tokens, sites, candidates=None):
            return -super().scores(tokens, sites, candidates)

    Other.__name__ = "Own"
    with pytest.raises(GlauberError, match="not the model"):
        glauber.extend(run, steps=40, model=Other())


def test_a_model_object_without_a_name(tiny_folder, texts, tmp_path):
    model = glauber.MaskedLM(conftest.make_model(), conftest.make_tokenizer())
    run = glauber.sample(model, texts, steps=6, out=tmp_path / "run")
    with pytest.raises(GlauberError, match=r"give the model itself|neither as a folder"):
        glauber.extend(run, steps=9)
    assert glauber.extend(run, steps=9, model=model).steps == 9
    assert glauber.resume(run, model=model).steps == 9


def test_an_interrupt_keeps_the_run_and_says_where(tiny_folder, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    counted = Session.count

    def interrupted(self, *args):
        counted(self, *args)
        if self.updates == 12 * len(texts):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "count", interrupted)
        with pytest.raises(KeyboardInterrupt, match="resume with: glauber resume") as caught:
            glauber.sample(str(tiny_folder), texts, steps=500, seed=1, memo=0)
    (folder,) = tmp_path.glob("glauber-*/run")
    assert f"glauber.resume({str(folder)!r})" in str(caught.value)
    run = glauber.Run(folder)
    assert 0 < run.steps < 500 and "stopped at step" in str(run)
    assert glauber.extend(run, steps=run.steps + 2).steps == run.steps + 2


def test_the_cost_is_said(tiny_folder, texts):
    planned = plan(str(tiny_folder), texts, steps=20)
    said = cost_line(planned, Path("r"), 100.0)
    assert said.startswith("5 chains x 20 steps on cpu in float32: up to 1 s at 100 steps/s")
    assert said.endswith("MB in r")


def test_many_states_are_read_at_once(tiny_folder, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: 64)
    run = glauber.sample(str(tiny_folder), texts, steps=400, temperature=2.0, out=tmp_path / "run")
    reads = []
    column = folder_log.ArrayTable.column
    with monkeypatch.context() as patch:
        patch.setattr(
            folder_log.ArrayTable, "column", lambda *about: reads.append(about) or column(*about)
        )
        states = dict(run.states())
    assert len(states) == 401 and 7 <= len(reads) < 30  # not one for each state
    for step in (0, 1, 57, 400):
        np.testing.assert_array_equal(states[step], run.tokens(step))
    found = run.texts(every=100)
    assert [len(row) for row in found] == [5] * 5 and found[2][4] == run.text(2)
    events = run.frame(events=True)
    assert len(events) == 5 * 400 and events["site"].min() == 0
    assert (events["site"] + run.first_site == run.read("site").ravel()).all()


def test_sites_are_counted_without_prefix_and_special_tokens(tiny_folder, texts):
    run = glauber.sample(
        str(tiny_folder), texts, prefix="they will be", length=4, freeze="0,2", steps=20
    )
    assert run.first_site == 4 and run.free[:, 4:8].tolist() == [[False, True, False, True]] * 5
    assert set(run.frame(events=True)["site"]) == {1, 3}
    changed = {
        site for snapshot in glauber.show(run, every=1).snapshots for site in snapshot.changed
    }
    assert changed <= {1, 3}


def test_forbidden_tokens_are_never_drawn(tiny_folder, texts):
    run = glauber.sample(str(tiny_folder), texts, steps=60, temperature=9.0, forbid=["cat", "the"])
    drawn = set(run.frame(events=True)["spelling"])
    assert not drawn & {"cat", "the"} and len(drawn) > 20
    assert run.spec.forbid == ["cat", "the"]


def test_steps_that_cannot_be_recorded_are_made_one_by_one(monkeypatch):
    """A model that copies between host and device cannot be a CUDA graph: one note, same steps."""
    from glauber.dynamics import cuda
    from glauber.dynamics.glauber import glauber as kernel_of
    from glauber.dynamics.kernel import run as plain
    from glauber.dynamics.kernel import start

    def refused(once):
        import warnings

        from glauber.foundation.errors import GlauberWarning

        warnings.warn("cannot be recorded", GlauberWarning, stacklevel=2)
        return None, None

    monkeypatch.setattr(cuda, "_capture", refused)
    kernel = kernel_of(Own())
    begun = start(torch.tensor([[0, 1, 2, 0]]), torch.ones(1, 4, dtype=torch.bool))
    with pytest.warns(glauber.GlauberWarning, match="cannot be recorded") as notes:
        steps = list(plain(cuda.graph_kernel(kernel), begun, 20, seed=1))
    assert len(notes) == 1
    for (state, _), (same, _) in zip(steps, plain(kernel, begun, 20, seed=1), strict=True):
        assert torch.equal(state.tokens, same.tokens)

"""What opens for a run, a name, an object; and what is refused before anything opens."""

import sys
import types
import urllib.request
import webbrowser

import pytest
import torch

import glauber
from waiting import SECONDS


class Coin:
    """A rule of one's own: each token is as likely as the other."""

    vocab_size = 2
    name = "coin"

    def scores(self, tokens, sites, candidates=None):
        count = 2 if candidates is None else candidates.shape[-1]
        return torch.zeros(*sites.shape, count)


def status_of(url: str) -> int:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.status


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    model = glauber.load(str(tiny_folder), device="cpu")
    out = tmp_path_factory.mktemp("runs") / "run"
    return glauber.sample(model, ["the cat sat on the mat ."], steps=20, seed=1, out=out)


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    found = []
    monkeypatch.setattr(webbrowser, "open", lambda url: found.append(url) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    return found


def about(what=None, **options):
    with glauber.explore(what, browser=False, **options) as found:
        return found.answers("about", {})


def test_nothing_given_opens_the_bundled_model():
    told = about()
    assert told["models"] == ["bundled:english"] and told["run"] is None
    assert told["views"] == ["live", "pair", "fill"] and told["version"] == glauber.__version__
    assert 0 < len(told["passages"]) <= 20 and set(told["passages"][0]) == {"topic", "text"}
    assert "uniform" in told["scans"] and told["translator"] is True


def test_a_run_brings_its_model(run, tiny_folder):
    for what in (run, run.folder, str(run.folder)):
        told = about(what)
        assert told["views"][0] == "run" and told["run"]["name"] == run.folder.name
        assert (told["run"]["chains"], told["run"]["steps"], told["run"]["finished"]) == (
            1,
            20,
            True,
        )
        assert told["models"] == [str(tiny_folder), "bundled:english"]


@pytest.mark.parametrize("how", ["what", "model", "list"])
def test_models_come_by_name_and_as_objects(how, tiny_folder):
    folder = str(tiny_folder)
    for given, name in ((folder, folder), (tiny_folder, folder), (Coin(), "coin")):
        several = [given] if how == "list" else given
        told = about(given) if how == "what" else about(model=several)
        assert told["models"] == [name, "bundled:english"] and told["run"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["bundled:klingon"], "there is no model bundled:klingon in the package"),
        (["--model", "nobody/nothing"], "there is no model nobody/nothing"),
        (["--model", "no.gguf"], "there is no model no.gguf"),
        (["--port", "99999"], "must be a number from 0 to 65535"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_what_is_not_there_is_one_sentence(glauber, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = glauber("explore", *words, "--no-browser")
    assert code == 2 and out == "" and err.count("\n") == 1 and said in err


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path):
    with pytest.raises(glauber.GlauberError, match=r"run\.json|no run"):
        glauber.explore(tmp_path, browser=False)
    with pytest.raises(glauber.GlauberError, match="is no model"):
        glauber.explore(3, browser=False)


def test_a_missing_extra_is_named_before_anything_else(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(glauber.GlauberError, match=r"pip install 'glauber\[explore\]'"):
        glauber.explore("nowhere")


def test_the_browser_gets_the_address_with_the_link(opened):
    with glauber.explore(link="#view=pair&step=3") as found:
        assert opened == [found.url] and found.url.endswith("/#view=pair&step=3")
        assert status_of(found.url.partition("#")[0]) == 200
        assert found.url in repr(found)
        port = found._server.port
    with glauber.explore(browser=False, port=port) as again:
        assert again.link == "" and len(opened) == 1


def test_a_machine_without_a_browser_gets_the_address_only(monkeypatch):
    def none(url):
        raise webbrowser.Error("no browser")

    monkeypatch.setattr(webbrowser, "open", none)
    monkeypatch.setenv("DISPLAY", ":0")
    with glauber.explore() as found:
        assert found.url.startswith("http://127.0.0.1:") and not found.open()


def test_no_browser_is_opened_inside_a_terminal(opened, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    with glauber.explore() as found:
        assert opened == [] and repr(found) == f"<Explorer {found.url}>"


def test_a_notebook_shows_the_page_itself(monkeypatch, opened):
    shell = types.SimpleNamespace(kernel=object())
    fake = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    with glauber.explore() as found:
        assert opened == [] and repr(found) == "<Explorer>" and found._server is None
    monkeypatch.delattr(shell, "kernel")  # IPython in a terminal
    with glauber.explore() as found:
        assert len(opened) == 1


def test_two_explorers_at_once():
    with glauber.explore(browser=False) as one, glauber.explore(browser=False) as other:
        assert one.url != other.url
        one.stop()
        assert status_of(other.url) == 200


def test_what_is_asked_of_a_run_that_is_not_open_is_refused():
    with glauber.explore(browser=False) as found:
        for name in ("film", "curves", "conditional", "sure"):
            status, answer = found.answers.reply(name, sound("")[f"{name} of the run"])
            assert status == 400 and "no run is open" in answer["error"]
        assert found.answers.reply("run", {})[0] == 400


def test_a_run_is_answered_as_it_is_stored(answers, run):
    film = answers("film", {"source": "run", "first": 5, "count": 3})
    shown = run.tokens(5)[0][run.free[0]]
    assert film["begin"][0] == shown.tolist() and film["count"] == 3 and film["end"] == 20
    begun = {"model": run.spec.model, "start": {"chain": 0, "step": 5}, "seed": 0, "chain": 0,
             "temperature": 1.0, "scan": "uniform", "frozen": [], "edits": []}  # fmt: skip
    living = answers("film", {"source": {"trails": [begun]}, "first": 0, "count": 0})
    assert living["begin"] == film["begin"]
    assert answers("run", {})["steps"] == 20


NONSENSE = [
    None, True, -1, 10**30, 1.5, 1e308, "", "a\x00b", "<b>", "x" * 50_000, [], [[]], [1, "a"], {},
    {"trails": []}, {"trails": [None]}, "run", {"trails": [{"model": "bundled:english"}]},
]  # fmt: skip


def sound(name):
    """A question of each name that is answered."""
    trail = {
        "model": name, "text": "the cat sat on the mat", "seed": 0, "chain": 0, "temperature": 1.0,
        "scan": "uniform", "frozen": [], "edits": [{"step": 1, "temperature": 0.5}],
    }  # fmt: skip
    living = {"source": {"trails": [trail]}}
    return {
        "about": {},
        "film": living | {"first": 0, "count": 2, "every": 1, "chains": None},
        "curves": living | {"points": 10},
        "conditional": living | {"chain": 0, "step": 1, "site": 0, "whole": True},
        "sure": living | {"chain": 0, "step": 1},
        "encode": {"model": name, "text": "the cat"},
        "tokens": {"model": name, "query": "ca", "count": 3},
        "fill": {
            "model": name,
            "text": "the [MASK] sat",
            "order": "random",
            "count": "1",
            "seed": 0,
        },
        "save": {"state": trail | {"view": "live", "step": 2}},
        "run": {},
        "bands": {"kind": "traps"},
        "film of the run": {"source": "run", "first": 3, "count": 2, "every": 1, "chains": [0]},
        "curves of the run": {"source": "run", "points": 10},
        "conditional of the run": {"source": "run", "chain": 0, "step": 3, "site": 1},
        "sure of the run": {"source": "run", "chain": 0, "step": 3},
        "save of the run": {"state": {"view": "run", "step": 2, "chain": 0}},
    }


@pytest.fixture(scope="module")
def answers(run, tiny_folder):
    with glauber.explore(run, browser=False) as found:
        yield found.answers


@pytest.mark.parametrize("label", sound(""))
def test_nonsense_in_any_place_is_answered_or_refused_in_a_sentence(answers, tiny_folder, label):
    """No value of any argument, of a trail or of a saved state, is a fault of the server."""
    given, name = sound(str(tiny_folder))[label], label.split()[0]
    assert answers.reply(name, given)[0] == 200
    tried = [given | {key: bad} for key in given for bad in NONSENSE]
    if label in ("film", "save"):
        inner = given["source"]["trails"][0] if name == "film" else given["state"]
        changed = [inner | {key: bad} for key in inner for bad in NONSENSE]
        changed += [inner | {"edits": [bad]} for bad in NONSENSE]
        inside = {
            "film": lambda one: {"source": {"trails": [one]}},
            "save": lambda one: {"state": one},
        }
        tried += [given | inside[name](one) for one in changed]
    for one in tried:
        status, answer = answers.reply(name, one)
        assert status in (200, 400), (one, answer)
        assert status == 200 or answer["error"].endswith((".", ".)")), answer

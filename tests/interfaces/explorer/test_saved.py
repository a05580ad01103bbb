"""One page to send: what it carries, that nothing in it runs, and that it plays from a file."""

import base64
import hashlib
import html
import json
import re

import numpy as np
import pytest

import conftest
import glauber
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer import live, saved
from glauber.interfaces.explorer.live import LiveChains
from glauber.interfaces.explorer.models import Models
from glauber.interfaces.explorer.questions import Answers
from glauber.models.masked_lm import MaskedLM
from glauber.runs.film import film, whole_film
from interfaces.explorer.films import numbers, played, states

MARKUP = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> & $note"
NOTHING = {"state": "none", "why": "none", "note": "", "bands": []}


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    model = glauber.load(str(tiny_folder), device="cpu")
    out = tmp_path_factory.mktemp("runs") / "my run <b>"
    texts = ["the cat sat on the mat .", "a big dog ran under the old tree"]
    return glauber.sample(model, texts, steps=300, temperature=1.0, seed=1, out=out)


def told_of(run):
    """Answers about a run, with a name that is markup."""
    told = {
        "name": MARKUP,
        "title": MARKUP,
        "summary": MARKUP,
        "model": "tiny",
        "chains": run.n_chains,
        "length": 9,
        "steps": run.steps,
        "planned": run.steps,
        "finished": False,
        "temperatures": [1.0, 1.0],
        "scan": "uniform",
        "kind": "chain",
        "first_site": 1,
        "damaged": None,
        "signature": run.signature,
    }
    found = {
        "chain": 0,
        "first": 20,
        "last": 60,
        "name": "trap",
        "text": MARKUP,
        "lines": [MARKUP],
    }
    bands = {
        "traps": {"state": "done", "why": "", "note": "", "bands": [found]},
        "basins": {"state": "working", "why": "", "note": "", "bands": []},
        "topics": NOTHING,
    }
    curve = {"mean": [0.1, None, 0.3], "chains": [[0.1, float("nan"), 0.3]] * 2}
    curves = {"steps": [0, 150, 300], "series": {"changed": curve}, "names": {"changed": "changed"}}
    about = {
        "version": "1",
        "models": ["tiny"],
        "run": told,
        "translator": True,
        "scans": ["uniform"],
        "passages": [{"topic": "a", "text": "b"}],
        "views": ["run", "live", "pair", "fill"],
    }
    return Answers(
        {
            "about": lambda: about,
            "run": lambda: told,
            "bands": lambda kind: bands[kind],
            "curves": lambda source: curves | {"notes": []},
            "fill": lambda **given: {"asked": given},
            "translate": lambda **given: {"asked": given},
        }
    )


def carried(text):
    """What a page carries."""
    found = re.findall(r'<script type="application/json" id="carried">(.*?)</script>', text, re.S)
    assert len(found) == 1
    return json.loads(found[0])


def test_a_run_is_carried_whole(run):
    answer = saved.save(told_of(run), None, run, {"view": "run", "step": 7, "chain": 1})
    assert answer["name"] == "glauber-my-run-b.html"
    found, exact = carried(answer["html"]), whole_film(run)
    for name in ("frame", "chain", "site", "token"):
        assert np.array_equal(numbers(found["film"][name]), getattr(exact, name))
    for name in ("log_prob", "entropy"):
        np.testing.assert_allclose(numbers(found["film"][name]), getattr(exact, name), rtol=2**-10)
    told = found["answers"]["run"]
    assert (told["steps"], told["every"], told["finished"]) == (300, 1, True)
    assert found["answers"]["about"]["views"] == ["run"]
    assert found["bands"]["traps"]["bands"][0]["text"] == MARKUP
    assert (
        found["bands"]["basins"]["state"] == "none"
        and "not ready" in found["bands"]["basins"]["why"]
    )
    assert found["answers"]["curves"]["series"]["changed"]["chains"][0] == [0.1, None, 0.3]
    assert found["state"] == {"view": "run", "step": 7, "chain": 1}
    assert found["note"].startswith("A stored run: 2 chains, every step up to 300.")


def test_a_long_run_is_thinned_and_says_so(run, monkeypatch):
    monkeypatch.setattr(saved, "EVENTS", 150)
    found = carried(saved.save(told_of(run), None, run, {"view": "run"})["html"])
    every, count = found["film"]["every"], found["film"]["count"]
    assert every > 1 and len(numbers(found["film"]["frame"])) <= 150
    assert found["answers"]["run"]["every"] == every
    assert found["answers"]["run"]["steps"] == every * count
    assert f"every {every}th step up to {every * count}." in found["note"]


def test_nothing_in_a_text_becomes_markup(run):
    text = saved.save(told_of(run), None, run, {"view": "run", "note": MARKUP})["html"]
    assert "<img" not in text and "document.title=" not in text.replace("\\u003c", "<")[:400]
    assert len(re.findall(r"<script", text)) == 2 == len(re.findall(r"</script", text))
    assert carried(text)["state"]["note"] == MARKUP
    titled = saved.page({"note": MARKUP, "answers": {}}, title=MARKUP)
    assert len(re.findall(r"<script", titled)) == 2 and html.escape(MARKUP) in titled


def test_only_the_pages_own_script_may_run(run):
    text = saved.save(told_of(run), None, run, {"view": "run"})["html"]
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    script = re.search(r"<script>(.*)</script>\n</body>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert len(text.encode()) < 400_000  # of which the modules and the chart code are 200 kB


LIVE = {
    "view": "live",
    "model": "tiny",
    "text": "a big dog ran",
    "seed": 3,
    "chain": 0,
    "temperature": 0.5,
    "scan": "uniform",
    "step": 100,
    "edits": [{"step": 50, "freeze": 0}],
}


class Clock:
    """Time that passes by a second whenever it is read."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.fixture(scope="module")
def tiny():
    return Models.of(MaskedLM(conftest.make_model("bert"), conftest.make_tokenizer(), name="tiny"))


def test_a_live_chain_is_carried_to_the_step_shown(run, tiny, monkeypatch):
    """Made in slices of a step or two, after some of it was shown."""
    monkeypatch.setattr(live, "SAVING", 1000.0)
    chains = LiveChains(tiny, limit=1.5, clock=Clock())
    source = {"trails": saved.trails_of(LIVE)}
    while "replayed" in chains.film(source, 30, 1):
        pass
    page = carried(saved.save(told_of(run), chains, None, LIVE)["html"])
    whole = played(LiveChains(tiny), source["trails"], 0, 100)[0]
    film = page["film"]
    assert (film["count"], film["end"], film["first"]) == (100, 100, 0)
    assert "every step up to 100" in page["note"]
    assert (states(film)[0][0] == whole).all()


def test_the_trails_of_a_state():
    shared = {"model": "tiny", "seed": 3, "chain": 0, "temperature": 0.5, "scan": "uniform"}
    first = shared | {"text": LIVE["text"], "frozen": [], "edits": LIVE["edits"]}
    assert saved.trails_of(LIVE) == [first]
    branch = [{"step": 9, "chain": 1}]
    assert saved.trails_of(LIVE | {"branch": branch}) == [first, first | {"edits": branch}]
    pair = saved.trails_of(LIVE | {"view": "pair", "text2": "b"})
    assert pair == [first, first | {"text": "b"}]
    begun = saved.trails_of(LIVE | {"start": {"chain": 1, "step": 2}, "frozen": [4]})[0]
    assert "text" not in begun and begun["start"] == {"chain": 1, "step": 2}
    assert begun["frozen"] == [4]


def test_fillings_and_translations_are_asked_again():
    answers = Answers(
        {
            "about": lambda: {"version": "1"},
            "fill": lambda **given: {"asked": given},
            "translate": lambda **given: {"asked": given},
        }
    )
    state = {"view": "fill", "model": "tiny", "text": "a ___ b", "order": "random", "seed": 2}
    found = carried(saved.save(answers, None, None, state)["html"])
    asked = {"model": "tiny", "text": "a [MASK] b", "order": "random", "seed": 2}
    assert found["answers"]["fill"]["asked"] == asked
    state = {"view": "fill", "mode": "translate", "text": "a dog", "passes": 3}
    found = carried(saved.save(answers, None, None, state)["html"])
    assert found["answers"]["translate"]["asked"] == {"text": "a dog", "steps": 3}


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"view": "run"},
        {"view": "other"},
        [],
        None,
        LIVE | {"step": -1},
        LIVE | {"step": True},
        LIVE | {"step": "4"},
    ],
)
def test_a_state_that_shows_nothing_is_refused(state):
    with pytest.raises(GlauberError, match=r"nothing to be saved|whole number"):
        saved.save(Answers({}), None, None, state)


def test_what_is_too_much_is_refused(run, tiny, monkeypatch):
    monkeypatch.setattr(saved, "LARGEST", 1000)
    with pytest.raises(GlauberError, match="too much to save"):
        saved.save(told_of(run), None, run, {"view": "run"})
    monkeypatch.setattr(live, "SAVING", 3.0)
    with pytest.raises(GlauberError, match="too long"):
        saved.save(told_of(run), LiveChains(tiny, limit=0.5, clock=Clock()), None, LIVE)
    for scan, most in (("uniform", 99), ("block:2", 199)):
        monkeypatch.setattr(live, "REDRAWS", most)
        with pytest.raises(GlauberError, match=f"at most {most} redraws"):
            saved.save(told_of(run), LiveChains(tiny), None, LIVE | {"scan": scan})


def same_states(left, right):
    pairs = zip(states(left), states(right), strict=True)
    return all(
        np.array_equal(tokens, others) and np.array_equal(sure, others_sure, equal_nan=True)
        for (tokens, sure), (others, others_sure) in pairs
    )


@pytest.mark.browser
@pytest.mark.parametrize(
    ("first", "count", "every", "chains"),
    [
        (0, 300, 1, None),
        (17, 20, 1, [1]),
        (100, 12, 5, [1, 0]),
        (290, 50, 1, None),
        (300, 5, 1, None),
        (8, 4, 7, None),
    ],
)
def test_a_stretch_of_a_carried_film_is_what_the_run_says(
    run, chromium, first, count, every, chains
):
    """Cut out in JavaScript, against the same stretch read from the run in Python."""
    from glauber.interfaces.report.bundle import script

    asked = {"first": first, "count": count, "every": every, "chains": chains}
    with chromium.new_page() as page:
        cut = page.evaluate(
            f"([film, asked]) => ({script('link.js')}).storedFilm(film)(asked)",
            [whole_film(run).to_dict(), asked],
        )
    exact = film(run, **asked).to_dict()
    for name in ("first", "every", "count", "chains", "lengths", "frozen", "end"):
        assert cut[name] == exact[name]
    assert same_states(cut, exact)


@pytest.mark.browser
def test_two_chains_of_one_number_stay_two(run, chromium):
    """A coupled pair shares its noise, and with it the number of the chain."""
    from glauber.interfaces.report.bundle import script

    pair = whole_film(run).to_dict() | {"chains": [3, 3]}
    cut_out = f"(film) => ({script('link.js')}).storedFilm(film)({{ first: 9 }})"
    with chromium.new_page() as page:
        cut = page.evaluate(cut_out, pair)
    assert cut["chains"] == [3, 3]
    assert same_states(cut, film(run, first=9, count=300).to_dict())


@pytest.mark.browser
def test_a_stride_that_a_film_does_not_have_is_answered_by_the_nearest(run, chromium):
    from glauber.interfaces.report.bundle import script

    thin = film(run, first=0, count=30, every=10).to_dict()
    with chromium.new_page() as page:
        cut = page.evaluate(
            f"(film) => [1, 14, 26].map((every) => ({script('link.js')}).storedFilm(film)"
            "({ first: 47, count: 3, every }))",
            thin,
        )
    assert [(one["first"], one["every"], one["count"]) for one in cut] == [
        (40, 10, 3),
        (40, 10, 3),
        (40, 30, 3),
    ]


def watched(chromium, faults, asked):
    """A page whose errors and requests are noted."""
    page = chromium.new_page()
    page.on("pageerror", lambda fault: faults.append(str(fault)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    return page


@pytest.mark.browser
def test_a_saved_run_plays_from_a_file(run, chromium, tmp_path):
    answer = saved.save(told_of(run), None, run, {"view": "run", "step": 7, "chain": 1})
    place = tmp_path / answer["name"]
    place.write_text(answer["html"], encoding="utf-8")
    faults, asked = [], []
    page = watched(chromium, faults, asked)
    page.goto(place.as_uri())
    page.locator("[data-step='7']").first.wait_for()
    text = page.locator("[data-chain='1']").first
    assert text.inner_text().split() == run.text(1, 7).replace(".", " .").split()
    page.get_by_role("button", name="Step on").click()
    page.locator("[data-step='8']").first.wait_for()
    assert text.inner_text().split() == run.text(1, 8).replace(".", " .").split()
    assert "A stored run: 2 chains" in page.inner_text("body")
    assert page.title() != "owned"
    assert faults == [] and all(one.startswith(("file:", "data:")) for one in asked)
    page.close()


def shown(page, step):
    """Waits until the step is shown."""
    page.locator(f"[data-step='{step}']").first.wait_for()
    page.locator("[data-token]").first.wait_for()


@pytest.mark.browser
@pytest.mark.parametrize("view", ["run", "live", "pair", "fill"])
def test_what_a_server_shows_and_what_was_saved_are_the_same_text(
    run, chromium, tmp_path, view, tiny_folder
):
    """Opened, saved by its button and opened from disk; nothing is asked of another machine."""
    texts = "text=the cat sat on the mat&text2=a big dog ran under it&seed=3&chain=0&scan=uniform"
    rest = {
        "run": "step=40&chain=1",
        "live": f"model={tiny_folder}&{texts}&temperature=1&step=12&edits=4t0.5,6f2",
        "pair": f"model={tiny_folder}&{texts}&temperature=1&step=12",
        "fill": f"model={tiny_folder}&mode=fill&text=the [MASK] sat on the ___&seed=1&step=2",
    }[view]
    step = re.search(r"&step=(\d+)|^step=(\d+)", rest)[0].split("=")[1]
    faults, asked = [], []
    with glauber.explore(run, browser=False, link=f"view={view}&{rest}") as found:
        page = watched(chromium, faults, asked)
        page.goto(found.url)
        shown(page, step)
        seen = page.locator("[data-chain]").all_inner_texts()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save page").first.click()
        place = tmp_path / download.value.suggested_filename
        download.value.save_as(place)
        page.close()
        address = found.url.split("#")[0]
    page = watched(chromium, faults, asked)
    page.goto(place.as_uri())
    shown(page, step)
    assert page.locator("[data-chain]").all_inner_texts() == seen and any(seen)
    assert page.get_by_role("button", name="Save page").count() == 0
    page.close()
    own = (address, "file:", "data:", f"blob:{address.rsplit('/', 2)[0]}")
    assert faults == [] and all(one.startswith(own) for one in asked)
    assert place.stat().st_size < 2_000_000

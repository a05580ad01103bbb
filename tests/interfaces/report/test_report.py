"""The report of a run: every part is there, or says in one sentence why it is not."""

import re
import shutil
import sys

import numpy as np
import pytest

from conftest import TEXTS
from glauber import GlauberError, sample
from glauber.interfaces.report import report as report_parts
from glauber.interfaces.report.report import remember, report
from glauber.runs.embedding import Embedder
from resealed import said_otherwise


def letters(texts):
    """Unit vectors that count letters: enough of a meaning to move in."""
    rows = np.array([[text.count(c) + 0.1 for c in "abcdefghijklmnopqrst"] for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


LETTERS = Embedder("letters", letters)


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return sample(
        str(tiny_folder), TEXTS, chains=4, length=4, steps=400, temperature=0.1, out=folder
    )


@pytest.fixture
def no_basins(monkeypatch):
    """The part that takes longest is left to the tests that look at it."""
    monkeypatch.setattr(
        report_parts, "_basins", lambda *_: report_parts.Section("basins", "Basins", ("-.",))
    )


def copied(run, folder, **changes):
    """The run in another folder, with a changed spec."""
    shutil.copytree(run.folder, folder)
    return said_otherwise(folder, **changes)


def test_a_run_has_every_part(run, tmp_path):
    found = report(run, out=tmp_path / "page.html", embedder=LETTERS)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for name in ("traps", "trajectory", "about", "basins", "ends", "texts"):
        assert f'id="{name}"' in page
    for picture in ("traps-0", "trajectory-0", "about-0", "basins-0", "basins-1"):
        assert f'id="{picture}"' in page
    assert "default-src 'none'" in page  # the browser itself refuses any request
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r'(src|href)="(https?:)?//', outside)
    assert run.text(0) in page and len(page) < 1.2e6
    assert len(found.frame()) == 4 and found.to_dict()["page"].endswith("page.html")
    assert all(note.endswith(".") for one in found.sections for note in one.notes)


def test_traps_say_their_threshold_and_how_many_are_listed(run, no_basins, tmp_path):
    found = report(run, out=tmp_path / "page.html", embedder=LETTERS, listed=1)
    traps = found.sections[0]
    assert re.search(r"at least \d+ steps .*(less than 0.12|within 1 token)", traps.notes[0])
    counted = re.search(r"\((\d+) of (\d+)\)\.$", traps.notes[-1])
    assert int(counted[1]) == len(traps.cards) == 1 < int(counted[2])


def test_the_path_of_every_chain_can_be_chosen(run, no_basins, tmp_path):
    found = report(run, out=tmp_path / "page.html", embedder=LETTERS, chain=2)
    menu = found.figures()["trajectory-trajectory"].layout.updatemenus[0]
    assert [button.label for button in menu.buttons] == [f"chain {k}" for k in range(4)]
    assert menu.active == 2
    with pytest.raises(GlauberError, match="there is no chain 4"):
        report(run, out=tmp_path / "page.html", chain=4)


def test_without_the_embeddings_the_rest_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    found = report(run, out=tmp_path / "page.html")
    parts = {one.name: one for one in found.sections}
    assert "glauber[embeddings]" in parts["about"].notes[0] and not parts["about"].figures
    assert "share of free sites" in parts["trajectory"].notes[0] and parts["trajectory"].figures
    assert parts["traps"].figures and parts["basins"].notes


def test_an_embedder_that_is_nowhere_is_said_before_anything_is_written(run, tmp_path):
    with pytest.raises(GlauberError, match="nobody/nothing"):
        report(run, out=tmp_path / "page.html", embedder="nobody/nothing")
    assert not (tmp_path / "page.html").exists()


def test_texts_that_no_embedding_reads_have_no_topics(run, no_basins, tmp_path):
    same = Embedder("blind", lambda texts: np.ones((len(texts), 3), np.float32))
    found = report(run, out=tmp_path / "page.html", embedder=same)
    parts = {one.name: one for one in found.sections}
    assert "Topics are left out" in parts["about"].notes[0]
    assert "blind gives different texts the same vector" in parts["trajectory"].notes[0]


def test_a_run_drawn_in_int8_is_evaluated_again_and_says_so(run, no_basins, tmp_path):
    folder = copied(run, tmp_path / "run", dtype="int8")
    found = report(str(folder), out=tmp_path / "page.html", embedder=LETTERS)
    assert any("drawn in int8" in note for note in found.sections[0].notes)
    assert "in int8" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_run_whose_model_is_gone_has_a_page(run, no_basins, tmp_path):
    folder = copied(run, tmp_path / "run", model=str(tmp_path / "gone"))
    found = report(folder, out=tmp_path / "page.html", embedder=LETTERS)
    assert "Traps were not looked for" in found.sections[0].notes[0]
    assert found.sections[1].figures


@pytest.mark.parametrize("steps", [0, 3])
def test_short_runs_say_why(tiny_folder, tmp_path, steps):
    brief = sample(str(tiny_folder), TEXTS, chains=4, length=4, steps=steps)
    report(brief, out=tmp_path / "page.html", embedder=LETTERS)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    parts = re.findall(r'<h2 id="(?:traps|trajectory|about|basins)">(.*?)</section>', page, re.S)
    assert len(parts) == 4
    for part in parts:  # a picture, or one sentence that says why there is none
        assert "<figure" in part or re.search(r'<p class="note">[^<]+\.</p>', part)
    assert "<figure" not in parts[3]  # too short for basins


def test_a_text_is_embedded_once():
    asked = []

    def embed(texts):
        asked.extend(texts)
        return letters(texts)

    once = remember(embed)
    first = once(["ab", "cd", "ab"])
    again = once(["cd", "ef"])
    assert asked == ["ab", "cd", "ef"]
    np.testing.assert_array_equal(first, letters(["ab", "cd", "ab"]))
    np.testing.assert_array_equal(again, letters(["cd", "ef"]))


# ---- in a browser


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    """A report with traps, and its page."""
    place = tmp_path_factory.mktemp("pages") / "page.html"
    return report(run, out=place, embedder=LETTERS, listed=3)


@pytest.fixture
def page(made, chromium):
    """The page, played; it has no error and asks for nothing but itself."""
    asked, errors = [], []
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    shown.on("request", lambda one: asked.append(one.url))
    shown.on("console", lambda one: errors.append(one.text))
    shown.on("pageerror", lambda one: errors.append(str(one)))
    shown.goto(f"file://{made.page}")
    shown.wait_for_selector("#player [data-step]")
    drawn = "[...document.querySelectorAll('.picture')].every(one => one._fullLayout)"
    shown.wait_for_function(f"() => {drawn}")
    yield shown
    context.close()
    assert errors == [] and asked.count(f"file://{made.page}") == 1
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)


def seen(page, chain, step):
    """The large text, once the player is at this chain and step."""
    page.wait_for_selector(f"#player[data-at='{chain} {step}']")
    return page.locator("#player .large [data-site]").all_text_contents()


def letters_of(text):
    return "".join(text.split()).replace("##", "")


@pytest.mark.browser
def test_a_trap_leads_to_its_text(page, made, run):
    """From its card by keyboard, and from its bar by a click; the text is the trap's own."""
    traps = made.sections[0]
    for card in traps.cards:
        chain, step = card.moment
        link = page.get_by_role("link", name=f"Watch chain {chain} at step {step:,}").first
        link.focus()
        page.keyboard.press("Enter")
        shown = seen(page, chain, step)
        assert letters_of("".join(shown)) == letters_of(run.text(chain, step))
        assert letters_of(run.text(chain, step)) == letters_of(card.text)
    bar = page.locator("#traps-0 .point path").first
    (name,) = page.evaluate(
        "[document.getElementById('traps-0').data.find(t => t.ids?.length).ids[0]]"
    )
    _, chain, _, first = name.split()
    bar.click(force=True)
    (band,) = [
        one
        for one in traps.bands["bands"]
        if one["chain"] == int(chain) and one["first"] == int(first)
    ]
    assert letters_of("".join(seen(page, int(chain), band["at"]))) == letters_of(band["text"])


@pytest.mark.browser
def test_a_point_of_the_trajectory_leads_to_its_step(page, run):
    """And the chain that one chooses is the one that the player shows."""
    page.locator("#trajectory-0").scroll_into_view_if_needed()
    page.get_by_role("combobox", name="Chain").select_option("chain 3")
    page.wait_for_selector("#player[data-at='3 0']")
    where = page.evaluate("""(() => {
        const at = document.getElementById('trajectory-0');
        const points = at._fullData.find(t => t.visible === true && t.ids?.length > 100);
        const { xaxis, yaxis } = at._fullLayout;
        const box = at.getBoundingClientRect();
        const [x, y] = [points.x[40], points.y[40]];
        return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
    })()""")
    page.mouse.move(*where)
    page.mouse.click(*where)
    page.wait_for_function("() => !document.getElementById('player').dataset.at.endsWith(' 0')")
    chain, step = map(int, page.locator("#player").get_attribute("data-at").split())
    assert chain == 3 and letters_of("".join(seen(page, 3, step))) == letters_of(run.text(3, step))
    assert page.evaluate("document.getElementById('player').getBoundingClientRect().y") < 100


@pytest.mark.browser
def test_the_run_is_played_and_a_link_opens_a_moment(page, run):
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "() => Number(document.querySelector('#player [data-step]').dataset.step) > 3"
    )
    page.get_by_role("button", name="Pause").click()
    page.goto(page.url.split("#")[0] + "#chain=2&step=123")
    assert letters_of("".join(seen(page, 2, 123))) == letters_of(run.text(2, 123))
    page.keyboard.press("ArrowRight")
    assert letters_of("".join(seen(page, 2, 124))) == letters_of(run.text(2, 124))


@pytest.mark.browser
def test_without_javascript_the_texts_are_there(made, chromium, run):
    with chromium.new_context(java_script_enabled=False) as context:
        plain = context.new_page()
        plain.goto(f"file://{made.page}")
        assert not plain.get_by_role("heading", name="Watch").is_visible()
        assert run.text(0) in plain.locator(".ends").inner_text()
        assert plain.locator(".timeline tr").count() > 4 * 20

"""The notebooks of examples/, run from the first cell to the last."""

import re
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from jupyter_client.manager import KernelManager

from waiting import SECONDS
from website.tutorials import NOTEBOOKS, executed, kinds


@pytest.fixture(scope="module")
def kernel(request):
    """One for all notebooks, emptied before each: modules and the model are read once."""
    manager = KernelManager()
    manager.start_kernel()
    request.addfinalizer(partial(manager.shutdown_kernel, now=True))
    client = manager.blocking_client()
    client.start_channels()
    lines = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from read_once import MaskedLM, reading_once
MaskedLM.load = reading_once()
"""
    try:
        reply = client.execute_interactive(lines, timeout=SECONDS)
        assert reply["content"]["status"] == "ok", reply
    finally:
        client.stop_channels()
    return manager


@pytest.mark.weights
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path, tmp_path, kernel):
    """What it shows, cell by cell, is of the kind that is stored in it."""
    notebook = executed(path, tmp_path, kernel)
    shown = kinds(notebook)
    assert any("table" in cell for cell in shown)
    assert kinds(nbformat.read(path, as_version=4)) == shown, "make tutorials"


def test_there_are_five_and_they_are_light():
    assert len(NOTEBOOKS) == 5
    assert max(path.stat().st_size for path in NOTEBOOKS) < 150_000


def shown_at(picture: str, step: int) -> str:
    """The letters of the text that the moving picture shows at a step, without blanks."""
    tag, found = "{http://www.w3.org/2000/svg}", ""
    for group in ElementTree.fromstring(picture).iter(tag + "g"):
        begin, end = group.get("style").split(" s")[1].split("-")
        if int(begin) <= step < int(end):
            found += "".join(
                word.text for word in group.iter(tag + "text") if word.get("textLength")
            )
    return found


def test_the_moving_picture_shows_every_step(tiny_folder, texts):
    from examples.moving_picture import moving_picture

    import glauber

    run = glauber.sample(str(tiny_folder), [texts[0]], chains=1, steps=40, seed=0)
    picture = moving_picture(run)
    for step in range(41):
        assert shown_at(picture, step) == run.text(0, step).replace(" ", "")
    groups = picture.split("<g")[1:]
    for step, site in enumerate(run.read("site")[0, :, 0], start=1):
        (marked,) = [one for one in groups if f": s{step}-" in one and "<rect" in one]
        word = run.vocabulary.parts([run.tokens(step)[0, site]])[0].strip()
        assert re.search(r"<rect.*?/><text.*?>(.*?)<", marked)[1] == word  # the one redrawn


@pytest.mark.weights
def test_the_picture_of_the_docs_is_that_of_its_script(tmp_path, monkeypatch):
    from examples import moving_picture

    monkeypatch.setattr(sys, "argv", ["moving_picture.py", "--out", str(tmp_path / "chain.svg")])
    moving_picture.main()
    made = (tmp_path / "chain.svg").read_text(encoding="utf-8")
    there = moving_picture.PLACE.read_text(encoding="utf-8")
    assert made.split("</title>")[1] == there.split("</title>")[1]  # the title names versions
    assert len(there) < 400_000

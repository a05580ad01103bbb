"""The report of a run: every part is there, or says in one sentence why it is not."""

import re

import numpy as np
import pytest

from glauber import sample
from glauber.explorer.report import remembered, write_report
from glauber.runs.embedding import Embedder
from glauber.sampling.sample import reopen


def letters(texts):
    """Unit vectors that count letters: enough of a meaning to move in."""
    rows = np.array([[text.count(c) + 0.1 for c in "abcdefghijklmnopqrst"] for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def made(tiny_folder, texts, tmp_path, **how):
    run = sample(
        str(tiny_folder), texts, chains=4, length=4, device="cpu", out=tmp_path / "run", **how
    )
    out = tmp_path / "page.html"
    write_report(run, out, laws=reopen(run).laws, embedder=Embedder("letters", letters))
    return run, out.read_text(encoding="utf-8")


def test_a_run_has_every_part(tiny_folder, texts, tmp_path):
    run, page = made(tiny_folder, texts, tmp_path, steps=500, temperature=0.3)
    for name in ("traps", "way", "about", "basins", "ends", "texts"):
        assert f'id="{name}"' in page
    assert 'id="traps-0"' in page or "None lasted for" in page
    for picture in ("way-0", "about-0", "basins-0", "basins-1"):
        assert f'id="{picture}"' in page
    assert "default-src 'none'" in page  # the browser itself refuses any request
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r'(src|href)="(https?:)?//', outside)
    assert run.text(0) in page


@pytest.mark.parametrize("steps", [0, 3])
def test_short_runs_say_why(tiny_folder, texts, tmp_path, steps):
    _, page = made(tiny_folder, texts, tmp_path, steps=steps)
    parts = re.findall(r'<h2 id="(?:traps|way|about|basins)">(.*?)</section>', page, re.S)
    assert len(parts) == 4
    for part in parts:  # a picture, or one sentence that says why there is none
        assert "<figure" in part or re.search(r'<p class="note">[^<]+\.</p>', part)
    assert "<figure" not in parts[3]  # too short for basins


def test_a_text_is_embedded_once():
    asked = []

    def embed(texts):
        asked.extend(texts)
        return letters(texts)

    once = remembered(embed)
    first = once(["ab", "cd", "ab"])
    again = once(["cd", "ef"])
    assert asked == ["ab", "cd", "ef"]
    np.testing.assert_array_equal(first, letters(["ab", "cd", "ab"]))
    np.testing.assert_array_equal(again, letters(["cd", "ef"]))

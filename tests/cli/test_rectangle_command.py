"""glauber rectangle, as a user types it, on a tiny model."""

import json
import sys

import pytest

from glauber.cli import main


@pytest.fixture
def glauber(monkeypatch, capsys, tiny_folder, tmp_path, texts):
    """Runs `glauber rectangle` on the tiny model: (exit code, stdout, stderr)."""
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(texts))

    def call(*words):
        fixed = ["glauber", "rectangles", "--model", tiny_folder, "--from", source]
        monkeypatch.setattr(sys, "argv", [str(word) for word in (*fixed, *words)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out, said.err

    return call


def test_it_prints_one_json_object(glauber):
    words = ["--count", 40, "--length", 5, "--top", 10, "--seed", 3, "--json"]
    code, out, err = glauber(*words)
    told = json.loads(out)
    assert code == 0 and err == ""
    assert told["count"] == 40
    assert told["interval"][0] < told["mean"] < told["interval"][1]
    assert 0 < told["noise_floor"] < 1e-3 < told["median"]
    assert 30 <= told["certified"] <= 40
    assert told["kind"]["mean"] == "estimate"
    assert "|length:5|rectangles:40|replacements:uniform-top-10|seed:3|" in told["signature"]
    assert len(told["strongest"]) == 3 and len(told["strongest"][0]["corners"]) == 4
    assert told["strongest"][0]["delta"] == told["quantiles"]["max"]
    again = json.loads(glauber(*words)[1])
    assert {**again, "seconds": 0} == {**told, "seconds": 0}


def test_it_tells_a_person_and_writes_pictures(glauber, tmp_path):
    place = tmp_path / "out"
    code, out, _ = glauber("--count", 12, "--length", 5, "--top", 10, "--out", place)
    assert code == 0
    assert "above the noise floor" in out and "with both" in out
    kept = json.loads((place / "result.json").read_text())
    assert kept["count"] == 12 and len((place / "result.csv").read_text().splitlines()) == 13
    assert (place / "histogram.html").is_file() and (place / "influence.html").is_file()
    code, _, err = glauber("--count", 12, "--top", 10, "--out", place)
    assert code == 2 and "exists already" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", 0, "--top", 10, "--length", 5], "the number of rectangles is 0"),
        (["--length", 1, "--top", 10], "the length is 1, but a rectangle needs two sites"),
        (["--length", 0], "the length is 0"),
        (["--length", 30], "no starting text has 30 tokens"),
    ],
)
def test_bad_input_is_one_sentence(glauber, words, said):
    code, out, err = glauber(*words)
    assert code == 2 and out == ""
    assert said in err and err.count("\n") == 1

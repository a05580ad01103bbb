"""What only the command line has: options that are given several times, and pages by name."""


def says(glauber, *words):
    code, out, err = glauber(*words)
    assert code == 2 and out == "" and err.count("\n") == 1
    return err


def test_prefixes_and_models_are_given_one_by_one(glauber, tmp_path):
    twice = ("--prefix", "we will be", "--prefix", "we will be")
    assert "given twice" in says(glauber, "prefixes", *twice)
    assert "at least two models" in says(glauber, "compare", "--model", "a")
    two = ("--model", "a", "--model", "b")
    assert "at least 2" in says(glauber, "compare", *two, "--chains", 1)
    assert "is not a run" in says(glauber, "topics", tmp_path)


def test_prefixes_write_a_page(glauber, tiny_folder, source, tmp_path):
    code, out, _ = glauber(
        "prefixes", "--model", tiny_folder, "--from", source, "--chains", 3, "--length", 5,
        "--steps", 8, "--every", 4, "--prefix", "the old dog", "--words", "cat,dog", "--embedder",
        "tokens", "--out", tmp_path / "p.html",
    )  # fmt: skip
    assert code == 0 and "words of the old dog" in out and "P(dog)" in out
    assert "topics are left out" in out.lower()
    assert 'class="picture"' in (tmp_path / "p.html").read_text()

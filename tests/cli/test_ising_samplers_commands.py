"""ising gap, ising race, parallel-cost and the paper's pieces, as a user types them."""

import json

import pytest

TEXT = "the cat sat on the mat ."


def test_gap(glauber, tmp_path):
    code, out, err = glauber(
        "ising", "gap", "--sites", 5, "--clique", 3, "--couplings", "0,0.2", "--blocks", "1,2",
        "--search", "--out", tmp_path / "gap.html", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert code == 0 and err == ""
    still = told["couplings"][0]
    assert [gap["value"] for gap in still["gaps"]] == pytest.approx([0.2, 0.4])
    assert still["parallel"]["total_variation"] < 1e-12
    assert told["couplings"][1]["above_line"]
    (one, two) = told["masks"]
    assert one["uniform"] < one["found"]["value"] <= one["best"]["value"] * (1 + 1e-9)
    assert two["found"]["kind"] == "lower bound" and two["best"]["kind"] == "upper bound"
    assert "coupling J" in (tmp_path / "gap.html").read_text()
    words = ["--sites", 4, "--clique", 3, "--couplings", "0.4", "--blocks", 1]
    code, out, _ = glauber("ising", "gap", *words, "--search", "--adaptive")
    assert code == 0 and "masks that see the state: 0.0" in out
    code, out, _ = glauber("ising", "gap", "--sites", 4, "--random", 3, "--couplings", "0.2")
    assert code == 0 and "random with seed 3" in out and "gap k=4" in out


def test_race(glauber, tmp_path):
    words = ["ising", "race", "--couplings", "0.5,8", "--blocks", "1,10", "--chains", 5]
    code, out, err = glauber(*words, "--out", tmp_path / "race.html", "--json")
    told = json.loads(out)
    assert code == 0 and err == ""
    slow, fast = told["races"][1]["gibbs"]
    assert slow["mean"]["log10"] > 20 and abs(fast["mean"]["log10"]) < 1e-6
    assert slow["simulated"]["arrived"] == 0 and fast["simulated"]["arrived"] == 5
    assert told["races"][1]["parallel"]["arrives_within_budget"]["value"] < 1e-20
    assert "not above 30" in told["races"][0]["condition"]
    assert "parallel" in (tmp_path / "race.html").read_text()
    code, out, _ = glauber(*words)
    assert code == 0 and "1.34e47" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("race", "--blocks", "11"), "k must be from 1 to 10"),
        (("gap", "--blocks", "0"), "k must be from 1 to 10"),
        (("gap", "--sites", "40"), "1,099,511,627,776 states"),
        (("gap", "--sites", "11", "--search", "--blocks", "1"), "at most 1,024 states"),
        (("gap", "--couplings", ","), "no coupling was given"),
        (("race", "--couplings", ""), "no coupling was given"),
        (("gap", "--sites", "0", "--random", "1"), "there are 0 sites"),
        (("race", "--clique", "12"), "a clique has 12 sites"),
    ],
)
def test_bad_input_is_one_sentence(glauber, words, said):
    code, out, err = glauber("ising", *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


def test_parallel_cost(glauber, tiny_folder, tmp_path):
    words = ["parallel-cost", TEXT, "--model", tiny_folder, "--samples", 8, "--top", 10]
    code, out, err = glauber(*words, "--sites", "1,2,5", "--out", tmp_path / "cost.html", "--json")
    told = json.loads(out)
    assert code == 0 and err == ""
    assert told["hidden"] == ["1 cat", "2 sat", "5 mat"]
    lower, upper = (told["pairs"]["total_variation"][key] for key in ("value", "upper_bound"))
    assert all(a <= b for x, y in zip(lower, upper, strict=True) for a, b in zip(x, y, strict=True))
    assert [one["k"] for one in told["by_count"]] == [1, 2, 3]
    assert sorted(w for g in told["plan"]["groups"] for w in g["sites"]) == told["hidden"]
    assert all(
        g["total_variation"]["value"] <= told["plan"]["error"] for g in told["plan"]["groups"]
    )
    assert [one["distance"] for one in told["by_distance"]] == [1, 3, 4]
    page = (tmp_path / "cost.html").read_text()
    assert "the token filled second" in page and "tokens apart" in page
    code, out, _ = glauber(*words, "--hide", 0.5)
    assert code == 0 and "plan:" in out and "the two orders" in out
    code, _, err = glauber(*words, "--sites", "1,9")
    assert code == 2 and "its tokens are 0 to 6" in err
    code, _, err = glauber(*words, "--hide", 0)
    assert code == 2 and "the share to hide is 0" in err


def test_the_pieces_of_the_paper(glauber, tmp_path):
    code, out, _ = glauber("paper", "B-fig3", "--out", tmp_path, "--json")
    told = json.loads(out)
    assert code == 0 and len(told["rows"]) == 55
    assert max(row["log10 of the mean steps"] for row in told["rows"]) > 20
    assert (tmp_path / "B-fig3-race.html").is_file()
    code, out, _ = glauber("paper", "B-corollary3", "--out", tmp_path, "--json")
    first = json.loads(out)["rows"][0]
    assert code == 0 and first["|C| of the corollary"] == 25
    assert first["N-Gibbs not there after one step"] < first["delta"]

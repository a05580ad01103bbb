"""ising gap, ising race, parallel-cost and the paper's pieces, as a user types them."""

import json

TEXT = "the cat sat on the mat ."


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

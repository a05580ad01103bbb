"""What a study declares: checks, signature, JSON, table and figures."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict, Unpack

import pytest

import glauber
from glauber.foundation.call import Call, Inputs, current_call, record_model, record_run
from glauber.foundation.checks import OneOf, Positive, Real, Share, Whole, check_seed
from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Estimate
from glauber.foundation.study import Default, Result, columns_of, internal, reported, study
from glauber.interfaces.cli.command import spellings


class Place(TypedDict, total=False):
    device: Annotated[str, "Where.", Default("auto")]
    width: Annotated[int, "How wide.", Whole(1, 8), Default(2)]


class Row(NamedTuple):
    name: str
    mean: Estimate
    share: Estimate


@dataclass(frozen=True, eq=False)
class Answer(Result):
    width: int
    mean: Estimate
    rows: tuple[Row, ...] = ()
    tensor: object = internal(default=None)

    FIGURES = {
        "one": ("tests.foundation.test_study:draw", "width"),
        "none": ("foundation.test_study:draw", "tensor"),
    }

    @reported
    def double(self) -> int:
        return 2 * self.width

    @property
    def not_reported(self) -> int:
        return 3

    def lines(self):
        yield f"mean {self.mean.text()}"

    def table(self):
        return self.rows


def draw(width):
    return ("drawn", width)


MEAN = Estimate(0.5, (0.25, 0.75), n_chains=4)


@study
def measure_it(
    text: str = "a cat",
    *,
    count: Annotated[int, "How many.", Whole(2, 10)] = 3,
    weights: Annotated[tuple[float, ...], "Each above zero.", Positive] = (1.0, 2.0),
    part: Annotated[float | None, "A share.", Share] = None,
    kind: Annotated[str, "Which.", OneOf(("hot", "cold"))] = "hot",
    seed: Annotated[int, "Random seed.", check_seed] = 0,
    quick: bool = False,
    **where: Unpack[Place],
) -> Answer:
    """Measure it."""
    return Answer(where.get("width", 2), MEAN, (Row("a", MEAN, Estimate(1.0, None)),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(count=1), "count is 1, but it must be at least 2"),
        (dict(count=11), "count is 11, but more than 10 is not possible"),
        (dict(count=2.5), "count is 2.5, but it must be a whole number"),
        (dict(count=True), "count is True, but it must be a whole number"),
        (dict(count=[5]), "count is a list, but it must be a single value"),
        (dict(weights=[1.0, 0.0]), "weights is 0, but it must be above 0 and finite"),
        (dict(weights=(1.0, 0.0)), "weights is 0, but it must be above 0 and finite"),
        (dict(weights=(float("nan"),)), "weights is nan"),
        (dict(part=1.5), "part is 1.5, but it must be at least 0 and at most 1"),
        (dict(part="x"), "part is 'x', but it must be a number"),
        (dict(kind="cool"), "must be one of hot, cold; did you mean cold"),
        (dict(seed=2**63), "seed is"),
        (dict(width=9), "width is 9, but more than 8"),
        (dict(text="a \udcff"), "text is not valid text"),
    ],
)
def test_checks_of_the_annotations(arguments, message):
    with pytest.raises(GlauberError, match=message):
        measure_it(**arguments)


def test_limits_belong_to_the_range():
    for number in (2, 10):
        measure_it(count=number)
    for share in (0.0, 1.0, None):
        measure_it(part=share)
    Real(-1.0, 1.0)("x", [-1, 1.0])
    with pytest.raises(GlauberError, match="at most 1"):
        Real(high=1.0)("x", 2)
    with pytest.raises(GlauberError, match="a finite number"):
        Real()("x", float("inf"))


def test_a_keyword_that_is_misspelled_is_answered_with_the_nearest():
    with pytest.raises(TypeError, match="no parameter 'widht'; did you mean 'width'"):
        measure_it(widht=3)


def test_options_of_a_group_are_parameters_of_the_study_and_the_command():
    parameters = measure_it.__signature__.parameters
    assert parameters["width"].default == 2 and parameters["device"].default == "auto"
    assert {"width", "device", "count"} <= set(spellings(measure_it))
    assert measure_it(width=5).width == 5


def test_an_answer_declares_its_json_table_and_figures():
    answer = measure_it(width=4)
    record = answer.record()
    assert list(record) == ["width", "mean", "rows", "double", "signature", "call"]
    assert record["double"] == 8 and record["mean"]["interval"] == [0.25, 0.75]
    assert record["rows"][0]["share"]["kind"] == "estimate"
    assert list(answer.frame().columns) == [
        "name", "mean", "mean_low", "mean_high", "share", "share_low", "share_high",
    ]  # fmt: skip
    assert answer.figures() == {"one": ("drawn", 4)}
    assert str(answer).splitlines() == ["mean 0.500 (95%: 0.250 to 0.750)", answer.signature]


def test_nested_rows_get_columns_with_their_name():
    row = {"trap": {"depth": 3, "gap": MEAN}, "chain": 1}
    assert columns_of(row) == {
        "trap_depth": 3, "trap_gap": 0.5, "trap_gap_low": 0.25, "trap_gap_high": 0.75, "chain": 1,
    }  # fmt: skip


def test_every_argument_is_in_the_signature():
    base = measure_it().signature
    assert base.startswith("study:measure-it|") and f"glauber:{glauber.__version__}" in base
    changes = [
        dict(text="a dog"), dict(count=4), dict(weights=(1.0,)), dict(part=0.5), dict(kind="cold"),
        dict(seed=1), dict(quick=True), dict(width=3), dict(device="cpu"), dict(text="x" * 500),
        dict(text="x" * 499 + "y"), dict(text="a|seed:1"), dict(text="two\nlines"),
    ]  # fmt: skip
    signatures = {base, *(measure_it(**change).signature for change in changes)}
    assert len(signatures) == len(changes) + 1
    assert all("\n" not in one and one.count("|seed:") == 1 for one in signatures)


def test_a_call_can_be_made_again():
    answer = measure_it("the dog", count=5, width=3)
    call = answer.record()["call"]
    assert call["study"] == "measure-it"
    again = measure_it(**call["arguments"])
    assert again.call == answer.call and again.signature == answer.signature


class Thing:
    """A stand-in for a model or a run."""

    def __init__(self, name):
        self.name = self.signature = name
        self.fingerprint = f"{name}0123456789abcdef"


def test_a_signature_names_every_model_and_run_that_was_opened():
    call = Call("compare", {"models": ["a", "b"], "seed": 0})
    a, b = Thing("a"), Thing("b")
    both = call.signature(Inputs(models=[a, b]))
    assert "model:a@a0123456789a" in both and ",b@b0123456789a" in both and "models:" not in both
    assert call.signature(Inputs(models=[a])) != both
    of_run = Call("traps", {"run": "folder", "lag": 3}).signature(Inputs(runs=[Thing("the run")]))
    assert of_run == "the run|study:traps|lag:3"


def test_what_is_opened_belongs_to_the_study_that_opened_it():
    seen = []

    @study
    def inner(model: object = None) -> Answer:
        record_model(Thing("small"))
        seen.append(current_call().study)
        return Answer(1, MEAN)

    @study
    def outer(model: object = None) -> Answer:
        record_model(Thing("large"))
        answer = inner()
        assert "small@" in answer.signature and "large@" not in answer.signature
        return Answer(2, MEAN)

    answer = outer()
    assert "large@" in answer.signature and "small@" not in answer.signature
    assert seen == ["inner"] and current_call() is None
    record_run(Thing("nobody asks"))  # outside a study nothing is noted


def test_a_result_outside_a_study_has_no_signature():
    assert Answer(1, MEAN).signature == "" and Answer(1, MEAN).call is None

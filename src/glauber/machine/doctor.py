"""Is this machine well? What is installed, what it can do, and whether it computes rightly."""

import faulthandler
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from glauber.machine.facts import Fact, facts
from glauber.machine.self_test import Check, self_test
from glauber.result import Result, counted, plain, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


@study
def doctor(
    *,
    quick: Annotated[bool, "Leave out the self-test, which takes about ten seconds."] = False,
) -> "Checkup":
    """Look this machine over: versions, devices, caches, extras, and a self-test of the engine.

    The self-test compares chains with the exact transition matrix and stationary law of a small
    model, our forward pass with transformers', batches with each other, and a resumed run with one
    that was never stopped, on every device there is. What is printed can be pasted into a bug
    report as it is. The command's exit code is 1 if something failed. It needs no network, and
    leaves nothing behind.
    """
    with suppress(Exception):  # where a broken build of a package kills Python, say where
        faulthandler.enable(sys.__stderr__ or sys.stderr)
    start = time.perf_counter()
    lines = list(facts())
    checks = [] if quick else self_test()
    return Checkup(lines, checks, time.perf_counter() - start, _signature(lines))


@dataclass(frozen=True, eq=False)
class Checkup(Result):
    """Facts about the machine and the checks of the self-test; seconds are of both together."""

    facts: list[Fact]
    checks: list[Check]  # none where it was left out
    seconds: float
    signature: str

    @property
    def failed(self) -> list[str]:
        """What is not well, by name."""
        wrong = [fact.name for fact in self.facts if fact.state == "failed"]
        return wrong + [
            f"{check.name} ({check.device})" for check in self.checks if not check.passed
        ]

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0

    def to_dict(self) -> dict[str, Any]:
        sections: dict[str, dict[str, str]] = {}
        for fact in self.facts:
            sections.setdefault(fact.section, {})[fact.name] = fact.value
        return plain(
            {
                "facts": sections,
                "notes": [fact.name for fact in self.facts if fact.state == "note"],
                "self_test": self.checks,
                "failed": self.failed,
                "seconds": self.seconds,
                "signature": self.signature,
            }
        )

    def lines(self) -> Iterable[str]:
        section = ""
        for fact in self.facts:
            if fact.section != section:
                section = fact.section
                yield section
            mark = {"": " ", "note": "-", "failed": "!"}[fact.state]
            yield f" {mark}{fact.name:<18} {fact.value}"
        yield "self-test" if self.checks else "self-test left out"
        for check in self.checks:
            mark, verdict = (" ", "passed") if check.passed else ("!", "failed")
            yield f" {mark}{verdict}  {check.device}: {check.name}, {check.said}"
        yield self._verdict()

    def _verdict(self) -> str:
        if self.failed:
            return f"not well: {', '.join(self.failed)}"
        tested = f", {counted(len(self.checks), 'check')} passed" if self.checks else ""
        return f"well{tested}; - is worth knowing, {self.seconds:.0f} s"

    def frame(self) -> "pandas.DataFrame":
        """One row per check, or per fact where the self-test was left out."""
        import pandas

        return pandas.DataFrame(self.checks or self.facts)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.chart import Chart

        figure = Chart("Self-test", "seconds of each check")
        names = [f"{check.name}, {check.device}" for check in self.checks]
        figure.add_bar(x=[check.seconds for check in self.checks], y=names, orientation="h")
        figure.update_xaxes(title="seconds")
        return {"self_test": figure}


def _signature(facts: list[Fact]) -> str:
    """The versions that matter most; unlike `result.signature`, also where torch is missing."""
    from glauber import __version__

    torch = next((fact.value for fact in facts if fact.name == "torch"), "missing")
    return f"study:doctor|glauber:{__version__}|torch:{torch.partition(',')[0]}"

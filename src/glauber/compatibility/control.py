"""Do the rectangles of a model with a joint law close? Then their arithmetic is right."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glauber.conditionals.base import Conditionals, Model
from glauber.conditionals.causal_lm import LeftToRight
from glauber.conditionals.load import load
from glauber.errors import GlauberError
from glauber.json_text import Record

if TYPE_CHECKING:
    from glauber.compatibility.rectangles import Measured

LEFT_TO_RIGHT = "left-to-right"
CLOSING = 10  # rectangles of a control, which pays a pass for every token of a text
CHECKS = (
    "a joint law closes them by construction, so this checks the arithmetic of four edges that "
    "are computed apart, and nothing else"
)


@dataclass(frozen=True, eq=False)
class Control:
    """Rectangles of a model with a joint law: they close, if the arithmetic is right."""

    name: str
    measured: "Measured"

    @property
    def edges(self) -> float:
        """The largest |log-ratio| along an edge: what must cancel."""
        return float(self.measured.rectangles.log_ratios.abs().max())

    def to_dict(self) -> Record:
        found = self.measured
        return {
            "model": self.name,
            "count": len(found.delta),
            "mean": float(found.delta.mean()),
            "largest": float(found.delta.max()),
            "largest_in_float64": float(found.precise.delta.max()),
            "largest_edge": self.edges,
            "certified": int(found.certified.sum()),
            "checks": CHECKS,
        }

    def line(self) -> str:
        delta = self.measured.delta
        return (
            f"control, {self.name}: Delta at most {delta.max():.1e} in {len(delta)} rectangles "
            f"with edges up to {self.edges:.1f} nats; {CHECKS}"
        )


def control_of(
    given: str | Conditionals, opened: Model, device: str, trust_remote_code: bool
) -> tuple[str, Model, Conditionals, Conditionals]:
    """The control's name, the model that reads its texts, and its conditionals in both dtypes."""
    if given == LEFT_TO_RIGHT:
        if not opened.whole_vocabulary:
            raise GlauberError(f"{opened.name} is autoregressive already and needs no control.")
        laws = LeftToRight(opened.conditionals())
        precise = LeftToRight(opened.to(dtype="float64").conditionals())
        return f"{opened.name} read from left to right", opened, laws, precise
    model = load(given, device=device, trust_remote_code=trust_remote_code)
    if isinstance(given, str) and model.whole_vocabulary:
        raise GlauberError(
            f"{given} is a masked LM, and a control is an autoregressive one: give another name, "
            f"or {LEFT_TO_RIGHT}."
        )
    return model.name, model, model.conditionals(), model.to(dtype="float64").conditionals()

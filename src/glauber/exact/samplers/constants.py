"""Is the clique model strongly ferromagnetic, and by how much?

h_G = sum of the fields in the clique, J_0 = J - max |h|. Strongly ferromagnetic means
h_G > sum of |h_i| outside the clique, and J_0 > 0.
"""

from dataclasses import dataclass

from glauber.exact.samplers.clique import Clique


@dataclass(frozen=True)
class Constants:
    """h_G, what it is compared with, and J_0."""

    field_sum: float  # h_G
    outside_sum: float
    margin: float  # J_0

    @property
    def strongly_ferromagnetic(self) -> bool:
        return self.field_sum > self.outside_sum and self.margin > 0

    @property
    def broken(self) -> str | None:
        """Which part of the condition fails, in words; None if it holds."""
        parts = []
        if not self.field_sum > self.outside_sum:
            parts.append(f"h_G = {self.field_sum:g} is not above {self.outside_sum:g} outside")
        if not self.margin > 0:
            parts.append(f"J_0 = J - max|h| = {self.margin:g} is not positive")
        return " and ".join(parts) or None


def constants(model: Clique) -> Constants:
    """The constants of the paper's condition."""
    others = model.n_sites - model.size
    largest = max(abs(model.field), abs(model.field_outside) if others else 0.0)
    return Constants(
        field_sum=model.size * model.field,
        outside_sum=others * abs(model.field_outside),
        margin=model.coupling - largest,
    )

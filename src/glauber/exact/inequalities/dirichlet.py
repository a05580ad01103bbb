"""How much does a function vary within the hidden sites? Dirichlet forms of block dynamics.

E(f, g) = E_K E over (x_{-K}, K) of Cov(f, g | x_{-K}, K), for fixed masks as in paper B; for
adaptive ones f and g are functions of X alone. It equals the mean of f (g - P g) under p.
"""

import numpy as np

from glauber.exact.inequalities.chain import expectation, mask_laws
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks


def dirichlet_form(law: Floats, masks: Masks, f: Floats, g: Floats | None = None) -> float:
    """E(f, g) for functions (size,); E(f, f) if only f is given."""
    other = f if g is None else g
    laws = mask_laws(law, masks)
    apart = (f - expectation(f, laws, masks)) * (other - expectation(other, laws, masks))
    return float((masks.per_state * law * apart).sum())


def variance(law: Floats, f: Floats) -> float:
    """Var(f) under a law (size,)."""
    return float(law @ (f - law @ f) ** 2)


def entropy(law: Floats, f: Floats) -> float:
    """Ent(f) = E[f log f] - E[f] log E[f] under a law (size,), for positive f."""
    mean = float(law @ f)
    return float(law @ (f * np.log(f / mean)))

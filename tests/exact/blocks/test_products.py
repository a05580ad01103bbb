"""Which laws are products, by brute force."""

import numpy as np
import pytest

from glauber.exact import Space
from glauber.exact.blocks.dynamics import gibbs_matrix
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.products import block_forms, product_distance
from glauber.exact.models import Ising
from glauber.foundation.errors import GlauberError


def test_products_are_recognised():
    a, b, c = (np.random.default_rng(i).dirichlet(np.ones(3)) for i in range(3))
    found = product_distance(np.einsum("i,j,k->ijk", a, b, c))
    assert found.is_product and found.divergence < 1e-12 and found.at_least < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_enclose_the_nearest_product(seed):
    """The nearest product of two bits, searched on a fine grid."""
    law = np.random.default_rng(seed).dirichlet(np.ones(4)).reshape(2, 2)
    found = product_distance(law)
    p, q = np.meshgrid(np.linspace(0, 1, 801), np.linspace(0, 1, 801), indexing="ij")
    tables = np.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)])
    nearest = (np.abs(tables - law.reshape(4, 1, 1)).sum(axis=0) / 2).min()
    assert found.at_least - 1e-12 <= nearest <= found.at_most + 2 / 800
    assert found.at_least == pytest.approx(abs(np.linalg.det(law)), abs=1e-12)
    with np.errstate(divide="ignore"):  # a product with a zero is infinitely far
        kl = (law.reshape(4, 1, 1) * (np.log(law.reshape(4, 1, 1)) - np.log(tables))).sum(axis=0)
    assert found.divergence - 1e-12 <= kl.min() <= found.divergence + 1e-4


def test_one_pass_fills_exactly_the_uncoupled_blocks():
    model = Ising.clique(4, 2, coupling=0.5, field=0.1)
    forms = block_forms(model.probabilities, Space(2, 4), 2)
    assert [form.block for form in forms if not form.fillable] == [(0, 1)]
    coupled = next(form for form in forms if form.block == (0, 1))
    assert coupled.mean_variation == pytest.approx(coupled.worst.at_most)  # in every context alike
    # p - product is + or - det in all four cells of two bits.
    assert coupled.worst.at_most == pytest.approx(2 * coupled.worst.at_least)


def test_what_is_refused():
    with pytest.raises(GlauberError, match="add up to 1"):
        product_distance(np.ones((2, 2)))
    with pytest.raises(GlauberError, match="k must be from 1 to 2"):
        block_forms(np.full(4, 0.25), Space(2, 2), 3)


def test_a_random_site_makes_even_one_site_steps_a_mixture():
    """Two fair bits from 00: (1/2, 1/4, 1/4, 0), whose determinant is -1/16."""
    row = gibbs_matrix(np.full(4, 0.25), Masks.uniform(Space(2, 2), 1)).toarray()[0]
    np.testing.assert_allclose(row, [0.5, 0.25, 0.25, 0])
    assert product_distance(row.reshape(2, 2)).at_least == pytest.approx(0.0625)
    given = gibbs_matrix(
        np.full(4, 0.25), Masks.from_weights(Space(2, 2), [(0,), (1,)], [1, 1e-300])
    )
    assert product_distance(given.toarray()[0].reshape(2, 2)).is_product

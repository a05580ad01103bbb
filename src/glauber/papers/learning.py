"""Pieces of the papers: learning."""

from glauber.papers import b_fig1, b_fig2, b_lemma3, b_theorem1, b_theorem2, b_theorem4

PIECES = {
    "B-fig1": (
        "squared error of the k-site estimate against samples, Ising clique with J = 0.05",
        b_fig1.make,
    ),
    "B-fig2": ("the same with J = 0.3, where the law has two modes", b_fig2.make),
    "B-theorem1": (
        "covariance of the k-site estimate for every k: larger masks are never worse",
        b_theorem1.make,
    ),
    "B-theorem2": (
        "the covariance beside its bound by the Poincare constant (and Theorem 3)",
        b_theorem2.make,
    ),
    "B-theorem4": (
        "the finite-sample bound with its terms, as written and with the excess loss",
        b_theorem4.make,
    ),
    "B-lemma3": ("what knowing the mask tells about the hidden sites (and Lemma 4)", b_lemma3.make),
}

"""Pieces of the papers: translation."""

from glauber.papers import b_ablation, b_table1, b_table2, b_table3, b_table4, b_table5

PIECES = {
    "B-table1": (
        "translation: the autoregressive model beside refinement at 4 and 10 steps",
        b_table1.make,
    ),
    "B-table2": (
        "translation: refinement beside mask-predict, easy-first and SUNDAE",
        b_table2.make,
    ),
    "B-table3": ("translation by a learned metric, where its weights are at hand", b_table3.make),
    "B-table4": ("self-attention between neighbouring positions, stuttering or not", b_table4.make),
    "B-table5": (
        "distance of the cross-attention of neighbouring positions, stuttering or not",
        b_table5.make,
    ),
    "B-ablation": (
        "translation: what each choice in decoding and in training is worth",
        b_ablation.make,
    ),
}

"""The public page of the exact tools: every name is there, described, and found in one place."""

import pydoc

from glauber import exact

NAMES = [name for name in vars(exact) if name[0] != "_" and callable(getattr(exact, name))]


def test_every_public_name_is_there_and_says_what_it_is():
    assert {"Space", "stationary", "block_gap", "fit_pairs", "exact_law"} <= set(NAMES)
    for name in NAMES:
        found = getattr(exact, name)
        assert callable(found) and (found.__doc__ or "").strip(), name


def test_the_page_names_the_tools_that_people_ask_for():
    page = pydoc.render_doc(exact, renderer=pydoc.plaintext)
    for name in ("Space", "transition_matrix", "stationary", "spectrum", "mixing_time", "Masks"):
        assert name in page.split("PACKAGE CONTENTS")[0]

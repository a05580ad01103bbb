"""Does an address give back the state that it was made from? Run inside Chromium."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Page

from glauber.interfaces.report.bundle import script

pytestmark = pytest.mark.browser

EDITS = [
    {"step": 0, "freeze": 0},
    {"step": 30, "temperature": 0.5},
    {"step": 45, "site": 3, "token": 1024},
    {"step": 60, "freeze": 3},
    {"step": 80, "free": 3},
    {"step": 90, "chain": 2},
]
TEXT = 'Blanks & more = "50%" +1 #2 <b>é</b>\n日本 😀 %2C,:/@ %00 ___'
CHAIN = {"model": "bundled:english", "text": TEXT, "seed": 7, "chain": 0, "scan": "uniform"}
STATES: list[dict[str, Any]] = [
    {"view": "run", "step": 400, "chain": 3, "every": 10, "bands": "traps"},
    {"view": "live", **CHAIN, "temperature": 1, "step": 120, "edits": EDITS},
    {
        "view": "live",
        "model": "a/b-c",
        "start": {"chain": 3, "step": 400},
        "frozen": [0, 5],
        "temperature": 1e-7,
        "step": 95,
        "branch": [*EDITS[:2], {"step": 90, "chain": 1}],
    },
    {"view": "pair", **CHAIN, "text2": "", "temperature": 0, "step": 0, "edits": EDITS[1:2]},
    {"view": "fill", "mode": "fill", "model": "bundled:english", "text": "A [MASK] ___ b",
     "order": "confidence", "count": "1", "temperature": 0.7, "seed": 1, "correct": 2, "step": 4},
    {"view": "fill", "mode": "translate", "text": TEXT, "passes": 4, "step": 2},
]  # fmt: skip


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    page.evaluate(f"window.permalink = {script('permalink.js')}; null")
    yield page
    page.close()


def encoded(page: Page, state: dict[str, Any]) -> str:
    return str(page.evaluate("state => permalink.encodeState(state)", state))


def decoded(page: Page, address: str) -> dict[str, Any]:
    return dict(page.evaluate("address => permalink.decodeState(address)", address))


@pytest.mark.parametrize("state", STATES, ids=lambda state: state["view"])
def test_a_state_survives_the_address(page: Page, state: dict[str, Any]) -> None:
    assert decoded(page, f"#{encoded(page, state)}") == {**state, "notes": []}


def test_the_address_is_readable(page: Page) -> None:
    address = encoded(page, {**STATES[1], "text": "a b"})
    assert address.startswith("view=live&model=bundled:english&text=a+b&seed=7&chain=0&")
    assert address.endswith("&step=120&edits=0f0,30t0.5,45s3=1024,60f3,80u3,90c2")
    assert parse_qs(encoded(page, STATES[1]))["text"] == [TEXT]


@pytest.mark.parametrize(
    ("address", "kept", "told"),
    [
        ("#view=nowhere&step=3", {}, ["nowhere"]),
        ("#view=live&step=-3&seed=1.5&temperature=NaN", {}, ["step", "seed", "temperature"]),
        ("#view=live&step=4&constructor=1&evil=%3Cb%3E", {"step": 4}, ["constructor", "evil"]),
        ("#view=live&edits=5t1,4t2,x,6s2,7f1", {"edits": [{"step": 5, "temperature": 1},
         {"step": 7, "freeze": 1}]}, ["4t2", "x", "6s2"]),
        ("#view=live&start=3&scan=a%20b&frozen=1,,2", {"frozen": [1, 2]}, ["start", "scan", '""']),
        ("#view=run&step=99999999999999999999", {}, ["step"]),
    ],
)  # fmt: skip
def test_bad_parts_are_left_out_with_a_note(
    page: Page, address: str, kept: dict[str, Any], told: list[str]
) -> None:
    state = decoded(page, address)
    notes = state.pop("notes")
    assert {name: value for name, value in state.items() if name != "view"} == kept
    assert len(notes) == len(told)
    assert all(any(word in note for note in notes) for word in told), json.dumps(notes)

"""A real browser, for the tests marked `browser`."""

import pytest


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as made:
        yield made.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])

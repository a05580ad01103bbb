"""The site as its reader opens it: built, from the disk, in a real browser, without a network."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parent.parent
SIZES = [(1280, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    built = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(built), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return built


@pytest.fixture(params=SIZES, ids=lambda size: str(size[0]))
def page(chromium, site, request):
    """A page that asks for nothing but files of the site."""
    width, scheme = request.param
    context = chromium.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
    )
    opened = context.new_page()
    asked, errors = [], []
    opened.on("request", lambda one: asked.append(one.url))
    opened.on("console", lambda one: errors.append(one.text))
    opened.on("pageerror", lambda one: errors.append(str(one)))
    yield opened
    context.close()
    own = (f"file://{site}/", "data:", "about:")
    assert errors == [] and [url for url in asked if not url.startswith(own)] == []


def test_nothing_is_wider_than_the_screen(page, site):
    pages = set(site.rglob("*.html")) - {site / "404.html"}  # which only a server shows
    assert len(pages) > 50
    for path in sorted(pages):
        page.goto(f"file://{path}")
        across = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert across[0] <= across[1], path


FOUND = {"rectangles": "Could it be one law?", "traps": "Where does it get stuck?"}


@pytest.mark.parametrize("word", FOUND)
def test_the_search_finds(page, site, word):
    page.goto(f"file://{site}/index.html")
    button = page.locator("label.md-header__button[for=__search]")
    if button.is_visible():
        button.click()
    page.locator("input[name=query]").press_sequentially(word)
    found = page.locator(".md-search-result__item", has_text=FOUND[word]).first
    found.wait_for()
    assert word in found.inner_text().lower()

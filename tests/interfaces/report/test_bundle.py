"""Plain modules become one script; what they may not do is looked for in their text."""

import re
from pathlib import Path

import pytest

from glauber.interfaces.report import bundle
from glauber.interfaces.report.bundle import WEB

MODULES = sorted(path.name for path in WEB.glob("*.js"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\(|"
    r"setTimeout\(\s*[\"'`]|\bon[a-z]+=\"|srcdoc|createContextualFragment"
)
URLS = re.compile(r"https?:|[\"'`]//")
WORDS = re.compile(r"^(?:import|export)\b[^;{]*", re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_bundles(name):
    """Its imports are there, none in a circle, and every form is one that the bundle knows."""
    made = bundle.script(name)
    assert made.startswith("(() => {") and not WORDS.findall(made)
    asked = re.findall(r"^const \{([^}]*)\} = modules\['([^']+)'\];", made, re.MULTILINE)
    for listed, other in asked:
        given = re.search(
            rf"^modules\['{re.escape(other)}'\] = .*?^return \{{ (.*?) \}};", made, re.M | re.S
        )
        names = {one.split(":")[0].strip() for one in listed.split(",") if one.strip()}
        assert names <= set(given[1].split(", ")), f"{name} asks {other} for what it has not"


@pytest.mark.parametrize("name", MODULES)
def test_no_module_makes_markup_or_code_of_text_or_asks_another_host(name):
    text = (WEB / name).read_text(encoding="utf-8")
    assert not FORBIDDEN.search(text) and not URLS.search(text)


@pytest.mark.parametrize("style", ["style.css", "vendor/uplot.css", "../templates/page.css"])
def test_styles_ask_nothing(style):
    assert not re.search(r"@import|url\(|https?:", (WEB / style).read_text(encoding="utf-8"))


def test_the_scripts_of_written_pages_keep_to_the_same():
    for path in (Path(bundle.__file__).parent / "templates").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not FORBIDDEN.search(text) and not URLS.search(text), path


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Modules of the test's own."""
    monkeypatch.setattr(bundle, "WEB", tmp_path)

    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.js").write_text(text)
        bundle.script.cache_clear()

    yield write
    bundle.script.cache_clear()


def test_a_circle_of_imports_is_refused(modules):
    modules(
        a='import { b } from "./b.js";\nexport const a = 1;\n',
        b='import { a } from "./a.js";\nexport const b = 1;\n',
    )
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js import each other"):
        bundle.script("a.js")


@pytest.mark.parametrize("form", ["export default 1;", 'import x from "./x.js";', "export let a;"])
def test_an_unknown_form_is_refused(modules, form):
    modules(a=form + "\n")
    with pytest.raises(ValueError, match="a form that the bundle does not know"):
        bundle.script("a.js")


def test_a_script_inside_a_page_cannot_end_it(modules):
    modules(a='export const text = "</script><!-- </SCRIPT>";\n')
    inside = bundle.inline("a.js")
    assert not re.search(r"</script|<!--", inside, re.IGNORECASE)
    assert r'"<\/script><\!-- <\/SCRIPT>"' in inside


@pytest.mark.browser
def test_every_module_parses_and_gives_what_it_exports(chromium):
    with chromium.new_page() as page:
        for name in MODULES:
            exported = page.evaluate(f"Object.keys({bundle.script(name)} ?? {{}})")
            text = (WEB / name).read_text(encoding="utf-8")
            assert set(bundle.EXPORT.findall(text)) <= set(exported), name

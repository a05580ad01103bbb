"""The page inside a notebook: messages to the kernel and back, and the script that sends them."""

import json
import queue
import threading

import pytest

import glauber
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.explore import Explorer
from glauber.interfaces.explorer.notebook import Page
from glauber.interfaces.explorer.questions import Answers
from waiting import SECONDS


def refusing():
    raise GlauberError("the model is asleep.")


def broken():
    raise RuntimeError("a path /home/somebody")


QUESTIONS = {
    "echo": lambda text="": {"text": text},
    "where": lambda: {"thread": threading.current_thread().name},
    "numbers": lambda: {"mean": float("nan"), "several": (1, 2)},
    "refusing": refusing,
    "broken": broken,
}


@pytest.fixture
def page(monkeypatch):
    made = Page(Answers(QUESTIONS), link="#view=live")
    made.sent = queue.Queue()
    monkeypatch.setattr(made, "send", made.sent.put)
    yield made
    made.stop()
    assert made._workers.join(SECONDS)


def ask(page, name, args=None, number="a-1"):
    """The answer to a message as the page in a cell sends it."""
    message = {"method": "custom", "content": {"id": number, "name": name, "args": args or {}}}
    page._handle_msg({"content": {"data": message}, "buffers": []})
    back = json.loads(json.dumps(page.sent.get(timeout=SECONDS), allow_nan=False))
    assert back["id"] == number
    return back["answer"]


def test_a_message_is_answered(page):
    assert ask(page, "echo", {"text": "the cat"}) == {"text": "the cat"}
    assert ask(page, "numbers") == {"mean": None, "several": [1, 2]}


def test_answers_are_made_beside_the_kernels_own_thread(page):
    assert ask(page, "where")["thread"].startswith("glauber-answer")


def test_a_refusal_and_a_fault_are_sentences(page, capfd):
    assert ask(page, "refusing") == {"error": "the model is asleep."}
    assert ask(page, "nobody") == {"error": "there is no question 'nobody'."}
    assert "no argument" not in ask(page, "echo", {"other": 1})["error"]
    failed = ask(page, "broken")["error"]
    assert "RuntimeError" in failed and "somebody" not in failed
    assert "broken failed at test_notebook.py" in capfd.readouterr().err


def test_what_is_no_question_is_not_answered(page):
    for content in (None, [], "a", {}, {"id": 1, "name": "echo"}):
        page._handle_msg({"content": {"data": {"method": "custom", "content": content}}})
    assert ask(page, "echo") == {"text": ""} and page.sent.empty()


def test_the_widget_holds_the_page_and_its_link(page):
    state = page.get_state()
    assert state["link"] == "#view=live" and state["_css"]
    assert "export default { render: page.render };" in state["_esm"]


CELL = """
async ([esm, css, link]) => {
  const cell = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  const heard = [];
  const model = {
    get: () => link,
    on: (name, hear) => heard.push(hear),
    send: async (message) => {
      const back = await kernel(message);
      for (const hear of heard) {
        hear({ id: "of another cell", answer: { error: "not for this one" } });
        hear(back);
      }
    },
  };
  cell.default.render({ model, el: document.body });
}
"""


@pytest.mark.browser
def test_the_page_opens_in_a_cell(page, chromium):
    """The widget's own script, in Chromium, with messages that go to the widget and back."""
    about = glauber.explore(browser=False).answers
    page._answers = about

    def kernel(message):
        return {"id": message["id"], "answer": ask(page, message["name"], message["args"], "x")}

    faults = []
    with chromium.new_page() as cell:
        cell.on("pageerror", lambda fault: faults.append(str(fault)))
        cell.expose_function("kernel", kernel)
        cell.evaluate(CELL, [page._esm, page._css, "#view=pair"])
        chosen = cell.get_by_role("tab", name="Pair")
        chosen.wait_for()
        assert chosen.get_attribute("aria-selected") == "true"
        assert faults == []


def test_an_explorer_shows_itself_in_a_notebook_without_a_server():
    with Explorer(Answers(QUESTIONS), link="view=live") as found:
        shown = found._repr_mimebundle_()
        data = shown[0] if isinstance(shown, tuple) else shown
        assert data["application/vnd.jupyter.widget-view+json"]["model_id"]
        assert found._display_().link == "#view=live"
        assert found._server is None

"""The page in a notebook: messages between a cell and the kernel.

The same page as in a browser, joined into one script. A question comes with a number and goes to
a few threads, so that cells can run meanwhile; its answer goes back with the same number.
"""

from collections.abc import Mapping

import anywidget
import traitlets

from glauber.foundation.errors import GlauberError
from glauber.foundation.study import plain
from glauber.interfaces.explorer.questions import Answers, Workers
from glauber.interfaces.report import bundle

SCRIPT = "const page = {script};\nexport default {{ render: page.render }};\n"


class Page(anywidget.AnyWidget):  # type: ignore[misc]
    """The page as a widget."""

    link = traitlets.Unicode().tag(sync=True)  # what follows # in an address

    def __init__(self, answers: Answers, *, link: str = "") -> None:
        self._esm = SCRIPT.format(script=bundle.script("widget.js"))
        self._css = bundle.css()
        self._answers, self._workers = answers, Workers()
        super().__init__(link=link)
        self.on_msg(self._on_message)

    def _on_message(self, _: object, message: object, buffers: object) -> None:
        """Answers a message of the page: {id, name, args}."""
        if not isinstance(message, Mapping) or not {"id", "name", "args"} <= message.keys():
            return
        number, name, args = message["id"], str(message["name"]), message["args"]

        def answer() -> None:
            _, reply = self._answers.reply(name, args if isinstance(args, dict) else {})
            self.send({"id": number, "answer": plain(reply)})

        try:
            self._workers.submit(answer)
        except GlauberError as error:
            self.send({"id": number, "answer": {"error": str(error)}})

    def stop(self) -> bool:
        """End the page; whether no answer is still being computed."""
        self._workers.close()
        self.close()
        return self._workers.join(0.1)

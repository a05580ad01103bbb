"""The server of a page in a browser, which only this machine can reach.

It listens on 127.0.0.1, and everything is under a random secret, so that no other user and no other
page that happens to be open can ask it. Requests that name another host (a name that was made to
point here), another origin or no JSON are refused. Files are a fixed list that is read once; no
part of a request becomes a path. Texts of models and users leave as JSON only.
"""

import asyncio
import json
import math
import secrets
import signal
import socket
import sys
import threading
from contextlib import ExitStack, suppress

import uvicorn
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.questions import Answer, Answers, Busy, Workers, to_json
from glauber.interfaces.report.bundle import WEB

HOST = "127.0.0.1"
LARGEST = 256 * 1024  # bytes of a question
DEEPEST = 64  # brackets inside brackets of a question
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(answers: Answers, workers: Workers, *, secret: str, port: int) -> ASGIApp:
    """The application: the page, its files, and the questions under /<secret>/ask/."""
    files = {
        path.relative_to(WEB).as_posix(): (path.read_bytes(), TYPES[path.suffix])
        for path in sorted(WEB.rglob("*"))
        if path.suffix in TYPES
    }
    files[""] = files["index.html"]

    async def respond(request: Request, path: str) -> Response:
        refusal = _refusal(request.headers, port)
        if refusal is not None:
            return _json(403, {"error": refusal})
        area, _, name = path.partition("/")
        if area == "ask" and request.method == "POST":
            return await _answer(request, answers, workers, name)
        if path in files and request.method in ("GET", "HEAD"):
            body, media_type = files[path]
            return Response(body, media_type=media_type)
        return Response(status_code=404)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        first, _, path = scope["path"].lstrip("/").partition("/")
        response = Response(status_code=404)  # reveals nothing without the secret
        if secrets.compare_digest(first.encode("utf-8", "replace"), secret.encode()):
            response = await respond(Request(scope, receive), path)
            for header, value in HEADERS.items():
                response.headers.setdefault(header, value)
        await response(scope, receive, send)

    return app


def _refusal(headers: Headers, port: int) -> str | None:
    """Why a request is refused that names another host, or comes from another page."""
    hosts = [f"{HOST}:{port}", f"localhost:{port}"]
    if headers.getlist("host") not in [[host] for host in hosts]:
        return f"the explorer only answers as {HOST}:{port}."
    if not {f"http://{host}" for host in hosts}.issuperset(headers.getlist("origin")):
        return "another page may not ask the explorer."
    if "cross-site" in headers.getlist("sec-fetch-site"):
        return "another page may not lead here: type the address instead."
    return None


async def _answer(request: Request, answers: Answers, workers: Workers, name: str) -> Response:
    """The answer when it is ready; a question that still waits is dropped if the client leaves."""
    try:
        arguments = read_question(await _body(request))
        # JSON is written in a worker too: a large film would keep the server's thread busy.
        future = workers.submit(lambda: _json(*answers.reply(name, arguments)))
        answer = asyncio.ensure_future(asyncio.wrap_future(future))
        disconnect = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait({answer, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            return answer.result()
        finally:
            future.cancel()
            for task in (answer, disconnect):
                task.cancel()
                with suppress(BaseException):
                    await task
    except GlauberError as error:
        return _json(503 if isinstance(error, Busy) else 400, {"error": str(error)})
    except (asyncio.CancelledError, ClientDisconnect):
        return _json(503, {"error": "the explorer was stopped."})


def _json(status: int, answer: Answer) -> Response:
    return Response(to_json(answer), status, media_type="application/json")


async def _body(request: Request) -> bytes:
    """The JSON of a question; one that is too long is refused before all of it is read."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise GlauberError("a question is asked in JSON (Content-Type: application/json).")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise GlauberError(f"a question has at most {LARGEST // 1024} KiB.")
    return body


def read_question(body: bytes) -> dict[str, object]:
    """A question: a JSON object of finite numbers and whole characters."""
    try:
        question = json.loads(body.decode("utf-8"), parse_constant=_finite, parse_float=_finite)
        json.dumps(question, ensure_ascii=False).encode("utf-8")  # no half characters
        _check_depth(question)
    except RecursionError:
        raise GlauberError("a question is not nested that deeply.") from None
    except ValueError:
        raise GlauberError("a question is a JSON object of finite numbers.") from None
    if not isinstance(question, dict):
        raise GlauberError("a question is a JSON object.")
    return question


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _check_depth(value: object, depth: int = 0) -> None:
    if isinstance(value, dict | list):
        if depth == DEEPEST:
            raise RecursionError
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth + 1)


class Server(uvicorn.Server):  # type: ignore[misc]
    """The page of an explorer on a port of this machine, in a thread of its own."""

    def __init__(self, answers: Answers, *, port: int = 0) -> None:
        self._socket = _listening_socket(port)
        self.port = int(self._socket.getsockname()[1])
        secret = secrets.token_urlsafe(24)
        self.url = f"http://{HOST}:{self.port}/{secret}/"
        self._workers, self._answering = Workers(), threading.Event()
        config = uvicorn.Config(
            make_app(answers, self._workers, secret=secret, port=self.port),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._thread = threading.Thread(
            target=self.run, args=([self._socket],), name="glauber-explorer", daemon=True
        )

    def start(self) -> "Server":
        """Start to answer."""
        self._thread.start()
        if not self._answering.wait(60):
            raise GlauberError("the explorer's server does not start.")
        return self

    def wait(self) -> None:
        """Until the server is stopped, or until Ctrl-C in the main thread.

        Ctrl-C sets a flag: an exception could be raised where Python ignores it, and be lost.
        """
        interrupts: list[int] = []
        with ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():
                before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
                stack.callback(signal.signal, signal.SIGINT, before)
            while not interrupts and self._thread.is_alive():
                self._thread.join(0.2)

    def stop(self) -> bool:
        """Stop within about a second; whether no answer is still being computed."""
        self.should_exit = True
        self._workers.close()
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()
        return self._workers.join(0.1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._answering.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._workers.close()
        for task in self.server_state.tasks:
            task.cancel()  # whoever waits for an answer hears that there will be none
        await super().shutdown(sockets=sockets)


def _listening_socket(port: int) -> socket.socket:
    """A socket of this machine only; port 0 is any free one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
        raise GlauberError(f"the port is {port!r}, but it must be a number from 0 to 65535.")
    # By the protocol's name asyncio knows that it may switch off Nagle's wait of 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise GlauberError(f"port {port} cannot be used: {error.strerror}.") from error
    return listening

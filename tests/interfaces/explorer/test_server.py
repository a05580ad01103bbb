"""The explorer's server: who is answered, who is refused, and that it ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.questions import THREADS, WAITING, Answers, Busy, Workers
from glauber.interfaces.explorer.server import LARGEST, Server
from waiting import SECONDS, until

MARKUP = "</script><script>alert('a')</script><img src=x onerror=alert(1)> \u2028 &amp;"


def echo(text=""):
    return {"text": text}


def numbers():
    return {
        "mean": float("nan"),
        "most": float("inf"),
        "least": 0.5,
        "several": [1.0, -float("inf")],
    }


def broken():
    raise RuntimeError("a secret path /home/somebody")


def refusing():
    raise GlauberError("the model is asleep.")


QUESTIONS = {"echo": echo, "numbers": numbers, "broken": broken, "refusing": refusing}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes at the end of a test, of a failing one too, what the test opened."""
    with ExitStack() as stack:
        yield stack


def stop(server):
    """Waits for all threads of a server, however busy the machine is."""
    server.stop()
    server._thread.join(SECONDS)
    assert server._workers.join(SECONDS) and not server._thread.is_alive()


def start(opened, questions):
    """A server that is stopped when the test ends; what waits in it is released before."""
    server = Server(Answers(questions)).start()
    opened.callback(stop, server)
    for question in questions.values():
        if isinstance(question, Held):
            opened.callback(question.go.set)
    return server


@pytest.fixture(scope="module")
def server():
    with ExitStack() as stack:
        yield start(stack, QUESTIONS)


def request(server, method="GET", path="", body=None, **headers):
    """(status, headers, body) of one request; path is relative to the secret one."""
    place = urlsplit(server.url)
    sent = {"Host": place.netloc} | {name.replace("_", "-"): one for name, one in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)) as line:
        line.putrequest(method, path if path[:1] == "/" else place.path + path, skip_host=True)
        for name, one in sent.items():
            line.putheader(name, one)
        if body is not None:
            line.putheader("Content-Length", str(len(body)))
        line.endheaders(body)
        answer = line.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def ask(server, name, given=None, raw=None, content_type="application/json", **headers):
    body = json.dumps(given or {}).encode() if raw is None else raw
    status, _, answer = request(
        server, "POST", f"ask/{name}", body, Content_Type=content_type, **headers
    )
    return status, json.loads(answer)


def test_the_page_and_its_files(server):
    status, headers, body = request(server)
    assert status == 200 and b'<script type="module" src="start.js">' in body
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    for name, kind in (("link.js", "javascript"), ("vendor/uplot.css", "css")):
        status, headers, body = request(server, path=name)
        assert (status, kind in headers["content-type"], len(body) > 100) == (200, True, True)


def test_a_question_is_answered(server):
    assert ask(server, "echo", {"text": "the cat"}) == (200, {"text": "the cat"})
    for host in ("127.0.0.1", "localhost"):
        own = f"{host}:{server.port}"
        more = {"Host": own, "Origin": f"http://{own}", "Sec_Fetch_Site": "same-origin"}
        assert ask(server, "echo", **more)[0] == 200


def test_numbers_that_are_none_become_null(server):
    assert ask(server, "numbers") == (
        200, {"mean": None, "most": None, "least": 0.5, "several": [1.0, None]},
    )  # fmt: skip


def test_it_listens_on_this_machine_only(server):
    assert server._socket.getsockname()[0] == "127.0.0.1"
    assert server._socket.proto == socket.IPPROTO_TCP  # or each answer waits 40 ms (Nagle)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", ""]
)
def test_another_origin_is_refused(server, origin):
    status, answer = ask(server, "echo", Origin=origin.format(port=server.port))
    assert status == 403 and "another page" in answer["error"]
    assert request(server, Origin=origin.format(port=server.port))[0] == 403


def test_another_site_is_refused(server):
    assert ask(server, "echo", Sec_Fetch_Site="cross-site")[0] == 403
    assert request(server, Sec_Fetch_Site="cross-site")[0] == 403
    assert request(server, Sec_Fetch_Site="none")[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1"]
)
def test_another_host_is_refused(server, host):
    """A name that was made to point to this machine is still another name."""
    assert ask(server, "echo", Host=host.format(port=server.port))[0] == 403
    assert request(server, Host=host.format(port=server.port))[0] == 403


@pytest.mark.parametrize(
    "change",
    [
        lambda s: "", lambda s: "wrong", lambda s: s[:-1], lambda s: s + "a", lambda s: s.lower(),
        lambda s: s + "%00", lambda s: "%E9", lambda s: "a" * 9000,
    ],
)  # fmt: skip
def test_without_the_secret_nothing_is_there(server, change):
    secret = urlsplit(server.url).path.strip("/")
    assert len(secret) >= 32 and secret != secret.lower()
    for rest in ("", "/", "/link.js", "/ask/echo"):
        for method, body in (("GET", None), ("POST", b"{}")):
            path = "/" + change(secret) + rest
            status, headers, body = request(
                server, method, path, body, Content_Type="application/json"
            )
            assert (status, body) == (404, b"") and "allow" not in headers


PATHS = [
    "../server.py", "..%2f..%2fexplorer/server.py", "%2e%2e/bundle.py", "..\\bundle.py",
    "/etc/passwd", "%2fetc%2fpasswd", "//etc/passwd", "link.js%00", "link.js%00.css", "vendor/",
    "vendor/../link.js", "./link.js", "link.js/", "LINK.JS", "file:///etc/passwd", "vendor",
    "vendor/README.md", "ask/", "ask",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_outside_is_not_there(server, path):
    inside = urlsplit(server.url).path + path if path[:1] != "/" else path
    status, _, body = request(server, path=inside)
    assert (status, body) == (404, b"")


def test_an_absolute_target_is_not_followed(server):
    for host in ("evil.example", f"127.0.0.1:{server.port}"):
        with socket.create_connection(("127.0.0.1", server.port), SECONDS) as line:
            target = f"http://{host}{urlsplit(server.url).path}"
            head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            line.sendall(head.encode())
            assert first_line(line).split()[1] in (b"403", b"404")


def test_text_with_markup_comes_back_as_data(server):
    status, headers, body = request(
        server, "POST", "ask/echo", json.dumps({"text": MARKUP}).encode(),
        Content_Type="application/json",
    )  # fmt: skip
    assert json.loads(body) == {"text": MARKUP}
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    status, answer = ask(server, "<img%20src=x>")
    assert status == 400 and set(answer) == {"error"}


def test_a_long_text_is_answered_and_a_longer_one_is_refused(server):
    long = "a" * (LARGEST - 100)
    assert ask(server, "echo", {"text": long}) == (200, {"text": long})
    status, answer = ask(server, "echo", {"text": "a" * LARGEST})
    assert status == 400 and "at most 256 KiB" in answer["error"]


def test_an_endless_body_is_cut_off(server):
    """A body that is sent in pieces, without a length, is refused at the limit."""
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as line:
        place = urlsplit(server.url)
        line.sendall(
            f"POST {place.path}ask/echo HTTP/1.1\r\nHost: {place.netloc}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        piece = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        for _ in range(LARGEST // 0x10000 + 1):
            line.sendall(piece)
        assert first_line(line).split()[1] == b"400"


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_is_no_json_is_refused(server, kind):
    """These kinds are what a form of another page could send without asking first."""
    status, answer = ask(server, "echo", raw=b"{}", content_type=kind)
    assert status == 400 and "JSON" in answer["error"]


def test_a_question_is_posted(server):
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert request(server, method, "ask/echo")[0] in (404, 405)
    assert "access-control-allow-origin" not in request(server, "OPTIONS", "ask/echo")[1]


DEEP = 60_000
BAD = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "deep inside": b'{"text":' + b"[" * 200 + b"]" * 200 + b"}",
    "not a number": b'{"text": NaN}',
    "infinite": b'{"text": -Infinity}',
    "infinite by size": b'{"text": 1e999}',
    "a number of many digits": b'{"text": ' + b"9" * 5000 + b"}",
    "half a character": b'{"text": "\\ud800"}',
    "not utf-8": b'{"text": "\xff"}',
    "a list": b"[]",
    "nothing": b"",
    "two": b"{}{}",
    "unknown argument": b'{"other": 1}',
    "another's self": b'{"self": 1}',
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD)
def test_a_bad_question_ends_in_one_sentence(server, raw):
    status, answer = ask(server, "echo", raw=raw)
    assert status == 400 and set(answer) == {"error"}
    assert answer["error"].endswith(".") and len(answer["error"]) < 200


def test_a_refusal_is_a_sentence(server):
    assert ask(server, "refusing") == (400, {"error": "the model is asleep."})
    assert ask(server, "nobody") == (400, {"error": "there is no question 'nobody'."})


def test_a_fault_is_told_to_the_terminal_and_not_to_the_page(server, capfd):
    status, answer = ask(server, "broken")
    assert status == 500 and "RuntimeError" in answer["error"]
    assert "somebody" not in answer["error"] and "Traceback" not in answer["error"]
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "question broken failed at test_server.py:" in said


def test_a_hundred_at_once(server):
    """All are answered; those beyond what may wait with a sentence."""
    with ThreadPoolExecutor(100) as crowd:
        found = list(crowd.map(lambda i: ask(server, "echo", {"text": str(i)}), range(100)))
    for i, (status, answer) in enumerate(found):
        assert (status, answer) == (200, {"text": str(i)}) or (
            status == 503 and "busy" in answer["error"]
        )
    assert ask(server, "echo")[0] == 200


class Held:
    """A question that waits until it is let go."""

    def __init__(self):
        self.go, self.begun, self.asked = threading.Event(), threading.Semaphore(0), []

    def __call__(self, number=0):
        self.asked.append(number)
        self.begun.release()
        assert self.go.wait(SECONDS)
        return {"number": number}

    def wait_for(self, count):
        for _ in range(count):
            assert self.begun.acquire(timeout=SECONDS)


def connect(opened, server):
    """A connection that is closed when the test ends."""
    return opened.enter_context(socket.create_connection(("127.0.0.1", server.port), SECONDS))


def open_question(opened, server, name, given):
    """A connection on which a question was asked and its answer not read."""
    line = connect(opened, server)
    place, body = urlsplit(server.url), json.dumps(given).encode()
    line.sendall(
        f"POST {place.path}ask/{name} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return line


def first_line(connection):
    """The status line of the answer."""
    with connection.makefile("rb") as answer:
        return answer.readline()


def test_beyond_what_may_wait_the_answer_is_busy(opened):
    held = Held()
    server = start(opened, {"held": held, "echo": echo})
    lines = [open_question(opened, server, "held", {"number": i}) for i in range(THREADS + WAITING)]
    held.wait_for(THREADS)
    until(lambda: len(server._workers._waiting) == WAITING)
    status, answer = ask(server, "echo")
    assert status == 503 and "busy" in answer["error"]
    held.go.set()
    for line in lines:
        assert b"200" in first_line(line)
    assert sorted(held.asked) == list(range(THREADS + WAITING))
    assert ask(server, "echo")[0] == 200


def test_what_a_client_no_longer_wants_is_not_begun(opened):
    held = Held()
    server = start(opened, {"held": held, "echo": echo})
    running = [open_question(opened, server, "held", {"number": i}) for i in range(THREADS)]
    held.wait_for(THREADS)
    gone = open_question(opened, server, "held", {"number": 1000})
    stays = open_question(opened, server, "held", {"number": 2000})
    waiting = server._workers._waiting
    until(lambda: len(waiting) == 2)
    gone.close()
    until(lambda: any(future.cancelled() for future, _ in list(waiting)))
    running[0].close()  # one that runs: its answer is thrown away
    held.go.set()
    assert b"200" in first_line(stays)
    assert ask(server, "echo")[0] == 200
    assert 2000 in held.asked and 1000 not in held.asked


def test_two_servers_do_not_know_each_other(server, opened):
    other = start(opened, {"echo": lambda: {"text": "the other"}})
    assert other.port != server.port
    assert ask(other, "echo") == (200, {"text": "the other"})
    assert ask(server, "echo") == (200, {"text": ""})
    path = urlsplit(server.url).path
    assert request(other, path=path)[0] == 404
    stop(other)
    assert ask(server, "echo")[0] == 200


def test_a_port_that_is_taken_is_a_sentence(server):
    with pytest.raises(GlauberError, match=f"port {server.port} cannot be used"):
        Server(Answers({}), port=server.port)
    for port in (-1, 65536, True, "80"):
        with pytest.raises(GlauberError, match="must be a number from 0 to 65535"):
            Server(Answers({}), port=port)


def test_a_stopped_server_leaves_no_thread_and_no_port(opened):
    before = set(threading.enumerate())
    held = Held()
    server = start(opened, {"held": held})
    running = open_question(opened, server, "held", {})
    connect(opened, server)  # and says nothing
    held.wait_for(1)
    assert not server.stop()  # one answer is still being computed
    assert b"503" in first_line(running)
    with pytest.raises(OSError):
        connect(opened, server)
    held.go.set()
    stop(server)
    assert set(threading.enumerate()) == before
    assert server.stop()  # again: nothing happens


def test_workers_take_no_more_than_they_may(opened):
    held = Held()
    few = Workers(1, waiting=2)
    opened.callback(few.close)
    opened.callback(held.go.set)
    first = few.submit(held)
    held.wait_for(1)
    waiting = [few.submit(held) for _ in range(2)]
    with pytest.raises(Busy, match="busy"):
        few.submit(held)
    assert waiting[0].cancel() and not first.cancel()
    later = few.submit(held)  # the cancelled one has made room
    few.close()
    assert later.cancelled() and waiting[1].cancelled()
    with pytest.raises(Busy, match="stopped"):
        few.submit(held)
    held.go.set()
    assert first.result(SECONDS) == {"number": 0} and few.join(SECONDS)
    assert held.asked == [0]


COMMAND = """
import sys, threading
from glauber.interfaces.explorer import explore as explorer
from glauber.interfaces.explorer.questions import Answers
began = threading.Event()
def endless():
    print("began", flush=True)
    threading.Event().wait()
explorer._answers = lambda *given, **how: Answers({"endless": endless})
sys.argv = ["glauber", "explore", "--no-browser"]
from glauber.interfaces.cli import main
main()
"""


def test_ctrl_c_ends_the_command_and_leaves_no_process(opened):
    """Also with open connections and with an answer that would never end."""
    environment = os.environ | {"PYTHONPATH": str(Path("src").resolve())}
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
    )  # fmt: skip
    opened.enter_context(command)  # closes its pipes
    opened.callback(command.kill)  # nothing happens if it has ended
    url = command.stdout.readline().split()[-1]
    assert command.stdout.readline() == "Ctrl-C stops it.\n"
    where = type("Where", (), {"url": url, "port": urlsplit(url).port})
    assert request(where)[0] == 200
    connect(opened, where)  # and says nothing
    open_question(opened, where, "endless", {})
    assert command.stdout.readline() == "began\n"
    command.send_signal(signal.SIGINT)
    assert command.communicate(timeout=SECONDS) == ("", "")
    assert command.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(command.pid, 0)

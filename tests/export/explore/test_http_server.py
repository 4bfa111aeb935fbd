"""The explorer's HTTP server: who may ask, what it refuses, and what its answers carry."""

import http.client
import json
import socket

import pytest

from export.explore import ExplorerServer
from export.explore.http_server import MAX_BODY_BYTES, MAX_REQUESTS
from zoo.errors import InputError
from zoo.explorer.page import ASSETS

JSON = {"Content-Type": "application/json"}


def send(explorer, method, path, body=None, **headers):
    """Returns status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=20)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    return response.status, response.headers, content


def ask(explorer, question, path="/api/view", **headers):
    status, _, content = send(explorer, "POST", path, json.dumps(question), **{**JSON, **headers})
    return status, json.loads(content)


def test_the_page_and_its_files(explorer):
    for file in ASSETS.iterdir():
        status, headers, content = send(explorer, "GET", f"/{file.name}")
        assert status == 200 and content == file.read_text(encoding="utf-8")
        assert (
            headers.get_content_type()
            == {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}[file.suffix]
        )
    assert send(explorer, "GET", "/?x=1")[2] == (ASSETS / "index.html").read_text(encoding="utf-8")


def test_the_policy_of_every_answer(explorer):
    for method, path in (("GET", "/"), ("GET", "/nothing"), ("POST", "/api/view"), ("PUT", "/")):
        _, headers, _ = send(explorer, method, path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control")]


def test_questions(explorer):
    status, models = send(explorer, "GET", "/api/models")[::2]
    assert status == 200 and json.loads(models)["text"] == "one two three"
    status, view = ask(explorer, {"model": "translator", "text": "one <img src=x onerror=alert(1)>"})
    assert status == 200 and view["tokens"] == ["one", "<img", "src=x", "onerror=alert(1)>", "</s>"]
    status, answer = ask(explorer, {"model": "translator", "text": "one two", "hypothesis": 1}, "/api/answer")
    assert status == 200 and answer["text"] == "one two"
    status, parts = ask(explorer, {"model": "continuer", "text": "one", "layer": 0}, "/api/layer")
    assert status == 200 and parts.keys() == {"decoder"}
    assert ask(explorer, {"model": "translator", "text": "half \ud83d"})[0] == 200


def test_names_that_it_is_called_by(explorer):
    """And names that somebody else gave it."""
    for host in ("localhost:{}", "127.0.0.1:{}", "[::1]:{}", "EXPLORER.example", "192.168.1.7:{}"):
        assert send(explorer, "GET", "/", Host=host.format(explorer.server_port))[0] == 200, host
    for host in ("evil.example", "evil.example:{}", "127.0.0.1.evil.example", "localhost:x", "", "1.2.3"):
        status, _, content = send(explorer, "GET", "/", Host=host.format(explorer.server_port))
        assert status == 421 and "--allowed_host" in content, host
        assert ask(explorer, {"model": "translator", "text": "one"}, Host=host)[0] == 421, host


def test_pages_of_others_may_not_ask(explorer):
    question = {"model": "translator", "text": "one"}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        status, answer = ask(explorer, question, **headers)
        assert status == 403 and answer.keys() == {"error"}, headers
    own = {"Origin": explorer.url.rstrip("/"), "Sec_Fetch_Site": "same-origin"}
    assert ask(explorer, question, **own)[0] == 200


NO_QUESTIONS = [
    ("{}", {"Content_Type": "text/plain"}, 415),
    ("{", JSON, 400),
    ("[" * 100_000, JSON, 400),
    ("[]", JSON, 400),
    ('{"text": 1}', JSON, 400),
    ('{"text": "x", "model": "other"}', JSON, 404),
    ('{"text": "x", "model": ["translator"]}', JSON, 404),
    ("x" * (MAX_BODY_BYTES + 1), JSON, 413),
    ("", {**JSON, "Content_Length": "-1"}, 411),
]


def test_questions_that_are_none(explorer):
    for body, headers, status in NO_QUESTIONS:
        received, _, content = send(explorer, "POST", "/api/view", body, **headers)
        assert received == status and json.loads(content)["error"], body[:99]
    for number in (-1, 1 << 31, 0.5, "1", True):
        question = {"model": "translator", "text": "one", "hypothesis": number}
        status, answer = ask(explorer, question, "/api/answer")
        assert status == 400 and "`hypothesis`" in answer["error"], number
    for path in ("/../pyproject.toml", "/%2e%2e/page.py", "/main.js/", "//etc/passwd", "/api/view"):
        assert send(explorer, "GET", path)[0] == 404, path


def test_errors_as_a_person_needs_them(explorer):
    for model, status, message in (
        ("deaf", 422, "deaf has no signature `attention_all`"),
        ("nowhere", 404, "Is it served under this name, and loaded?"),
        ("gone", 502, "No server responds at localhost:9"),
    ):
        received, answer = ask(explorer, {"model": model, "text": "one"})
        assert received == status and message in answer["error"]
    received, answer = ask(explorer, {"model": "translator", "text": "x" * 40_000})
    assert received == 422 and "40,000 bytes" in answer["error"]


def test_a_question_that_nobody_waits_for_is_cancelled(explorer, scripted):
    scripted.release.clear()
    body = json.dumps({"model": "translator", "text": "one"}).encode()
    head = (
        f"POST /api/view HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection(("127.0.0.1", explorer.server_port)) as browser:
        browser.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        while not scripted.requests:
            pass
    assert scripted.cancelled.wait(10)


def test_too_many_questions(explorer):
    for _ in range(MAX_REQUESTS):
        explorer.free_slots.acquire()
    assert ask(explorer, {"model": "translator", "text": "one"})[0] == 503
    for _ in range(MAX_REQUESTS):
        explorer.free_slots.release()
    assert ask(explorer, {"model": "translator", "text": "one"})[0] == 200


def test_addresses(explorer):
    assert explorer.server_address[0] == "127.0.0.1"
    assert explorer.url == f"http://127.0.0.1:{explorer.server_port}/"
    for host, port in (("127.0.0.1", explorer.server_port), ("203.0.113.1", 0), ("127.0.0.1", 70_000)):
        with pytest.raises(InputError, match=f"{host}.*{port}"):
            ExplorerServer([], host=host, port=port)

"""How the client reaches a server: retries and encryption."""

import contextlib
import socket
import threading
from concurrent import futures

import grpc
import pytest
from support import server_tls
from support.scripted_server import Scripted, serving

from export.client import Client, RequestRefused, Tls, api, channel
from zoo.errors import InputError

SECONDS = 60


def test_unavailable_is_asked_again(scripted_client, service):
    def refuse_twice(_, context):
        if len(service.requests) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")

    service.before = refuse_twice
    assert scripted_client.translate(["a"]) == ["A"]
    assert len(service.requests) == 3


def test_a_model_that_loads_is_waited_for(service, monkeypatch):
    monkeypatch.setattr(api, "_LOADING_WAIT", 0.01)
    lines, loads = [], threading.Event()

    def is_loading(_, context):
        if not loads.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "Model default is loading.")

    service.before = is_loading
    with serving(service) as address:
        with (
            Client(address, retries=0, timeout=0.2, waiting=lines.append) as client,
            pytest.raises(RequestRefused, match=r"0\.2 s: Model default is loading\.") as caught,
        ):
            client.translate(["a"])
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        assert len(lines) > 2 and set(lines) == {"Model default is loading."}
        lines.clear()
        with Client(
            address, retries=0, timeout=SECONDS, waiting=lambda line: (lines.append(line), loads.set())
        ) as client:
            pending = client.start(inputs={"text": ["a"]})
            assert pending.result()["text"].tolist() == ["A"]
        assert len(lines) == 1


def test_a_large_request_is_asked_again_too(scripted_client, service):
    service.before = lambda _, context: len(service.requests) > 1 or context.abort(grpc.StatusCode.UNAVAILABLE, "")
    assert scripted_client.translate(["x" * 1_000_000]) == ["X" * 1_000_000]


def test_nothing_else_is_asked_again(scripted_address, scripted_client, service):
    service.before = lambda _, context: context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    with pytest.raises(RequestRefused, match="RESOURCE_EXHAUSTED: full"):
        scripted_client.translate(["a"])
    assert len(service.requests) == 1
    service.before = lambda _, context: context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
    with Client(scripted_address, retries=0) as client, pytest.raises(RequestRefused, match="starting"):
        client.translate(["a"])
    assert len(service.requests) == 2, "retries can be switched off"
    with pytest.raises(InputError, match="0 to 4.*retries=5"):
        Client(scripted_address, retries=5)


def test_a_server_that_comes_back_is_found(service):
    with serving(service) as address:
        port = address.rpartition(":")[2]
    with Client(address, timeout=SECONDS) as client:
        first = client.stream([{"text": ["a"]}, None])
        with futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(next, first)
            with pytest.raises(futures.TimeoutError):
                answer.result(timeout=0.1)  # it has not given up
            with serving(service, port=port):
                assert answer.result(SECONDS)["text"].tolist() == ["A"]


@contextlib.contextmanager
def relay(address):
    """Yields the port of a relay to a server, and an event after which it holds all bytes back: a server that hangs."""
    hangs = threading.Event()

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not hangs.is_set():
                    sink.sendall(data)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                pair = [listener.accept()[0], socket.create_connection(("localhost", int(address.rpartition(":")[2])))]
                sockets.extend(pair)
                for source, sink in (pair, pair[::-1]):
                    threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        sockets = [listener]
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], hangs
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_of_three_servers_one_ends_and_one_hangs(monkeypatch):
    monkeypatch.setattr(channel, "_PING_AFTER", 0.3)
    monkeypatch.setattr(channel, "_PING_TIMEOUT", 0.3)
    services = [Scripted() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        ending = stack.enter_context(contextlib.ExitStack())
        addresses = [ending.enter_context(serving(services[0]))]
        addresses += [stack.enter_context(serving(service)) for service in services[1:]]
        port, hangs = stack.enter_context(relay(addresses.pop()))
        ports = [*(address.rpartition(":")[2] for address in addresses), port]
        server = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
        client = stack.enter_context(Client(server, timeout=20))
        texts = [f"text {number}" for number in range(30)]
        # One after the other until all have been asked: connections are made in no order.
        while not all(service.requests for service in services):
            client.translate(texts[:1])
        ending.close()
        hangs.set()
        asked = [len(service.requests) for service in services]
        answers = [outputs["text"].item() for outputs in client.stream({"text": [text]} for text in texts)]
    assert answers == [text.upper() for text in texts]
    assert [len(service.requests) for service in services] == [asked[0], asked[1] + 30, asked[2]]


# Encryption


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """PEM files of an authority, of a server for the name localhost, and of a client."""
    folder = tmp_path_factory.mktemp("pems")
    for name, text in {
        "ca.pem": server_tls.AUTHORITY,
        "localhost.pem": server_tls.SERVER_CERTIFICATE,
        "localhost.key": server_tls.SERVER_KEY,
        "client.pem": server_tls.CLIENT_CERTIFICATE,
        "client.key": server_tls.CLIENT_KEY,
    }.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(params=[False, True], ids=["tls", "mutual"])
def secure(pems, request):
    """The address of an encrypted server, and whether it asks for the client's certificate."""
    pair = (pems / "localhost.key").read_bytes(), (pems / "localhost.pem").read_bytes()
    credentials = grpc.ssl_server_credentials([pair], (pems / "ca.pem").read_bytes(), request.param)
    with serving(Scripted(), credentials) as address:
        yield address, request.param


def test_encrypted(secure, pems, command):
    """Who cannot prove who they are is refused."""
    address, mutual = secure
    own = {"certificate": pems / "client.pem", "key": pems / "client.key"} if mutual else {}
    with Client(address, tls=Tls(pems / "ca.pem", **own), timeout=SECONDS) as client:
        assert client.translate(["a"]) == ["A"]
    flags = [f"--tls_{name}={path}" for name, path in zip(("cert", "key"), own.values(), strict=False)]
    flags = [f"--server={address}", "--model=m", f"--tls_ca={pems / 'ca.pem'}", *flags, "a"]
    assert command(*flags) == (0, "A\n", "")
    strangers = [None, Tls(pems / "client.pem"), Tls(pems / "ca.pem", server_name="client.test")]
    strangers += [Tls(pems / "ca.pem")] if mutual else []
    for tls in strangers:
        with Client(address, tls=tls, retries=0, timeout=SECONDS) as client, pytest.raises(RequestRefused) as caught:
            client.translate(["a"])
        assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_pem_files_that_are_none(pems, tmp_path):
    junk = tmp_path / "junk.pem"
    for content in ("", "junk", server_tls.AUTHORITY[:200], "-----BEGIN CERTIFICATE-----\n"):
        junk.write_text(content)
        for tls in (Tls(junk), Tls(certificate=junk, key=pems / "client.key")):
            with pytest.raises(InputError, match=r"junk\.pem.*certificate"):
                Client("localhost:1", tls=tls)
        with pytest.raises(InputError, match=r"junk\.pem.*private key"):
            Client("localhost:1", tls=Tls(certificate=pems / "client.pem", key=junk))
    certificate, cut = pems / "client.pem", tmp_path / "cut.key"
    cut.write_text("\n".join(server_tls.CLIENT_KEY.splitlines()[:3]))
    for key, reason in ((pems / "localhost.key", "another"), (cut, "damaged")):
        with pytest.raises(InputError, match=rf"{key.name}.*client\.pem.*{reason}"):
            Client("localhost:1", tls=Tls(certificate=certificate, key=key))
    with pytest.raises(InputError, match=r"nope\.pem"):
        Client("localhost:1", tls=Tls(pems / "nope.pem"))
    with pytest.raises(InputError, match="certificate.*key"):
        Tls(certificate=pems / "client.pem")

"""The deployment files in use: as the README says, and by a server."""

import ast
import contextlib
import importlib
import json
import re
import shlex
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from support import server_tls
from support.deploy_files import (
    CONFIG,
    MODEL,
    README,
    compose,
    config,
    deployment,
    flags,
    kserve,
    manifests,
    patched,
)

from export.batch import cli as batch_cli
from export.client import Client, RequestRefused, Tls, cli
from export.client.seeds import row_seeds
from export.deploy import ssl_config
from export.graph.attention_weights import ALL
from export.serve import read_settings
from export.server import ModelServer
from export.server.models.saved_model import LoadedModel

# The README


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def readme_commands():
    return [shlex.split(line) for line in "".join(blocks("")).replace("\\\n", " ").splitlines()]


def test_commands_of_the_readme_parse():
    for module, parse in (("export.client", cli._parse), ("export.batch", batch_cli._parse)):
        found = [words[words.index(module) + 1 :] for words in readme_commands() if module in words]
        assert len(found) > 3
        for words in found:
            end = next((index for index, word in enumerate(words) if word in "<>|&"), len(words))
            parse(words[:end])


def test_paths_of_the_readme_exist():
    text = README.read_text("utf-8")
    paths = set(re.findall(r"\]\((?!https?://|#)([^)]+)\)", text)) | {
        word.removeprefix("export/") for word in re.findall(r"export/deploy[\w./-]*", text)
    }
    assert len(paths) >= 8
    assert [path for path in paths if not (README.parent / path.partition("#")[0]).exists()] == []


def test_names_of_the_readme_are_those_of_the_files():
    lines = [" ".join(words) for words in readme_commands()]
    source = manifests()["Pod", "upload"]["metadata"]["name"]
    secret = deployment(patched())["volumes"][-1]["secret"]["secretName"]
    config_map = kserve()[0]["volumes"][0]["configMap"]["name"]
    wanted = [
        f"kubectl wait --for=condition=Ready pod/{source}",
        f"kubectl cp exported/{MODEL}/1 {source}:/models/{MODEL}/.incoming",
        f"kubectl rollout status deployment/{MODEL}",
        f"kubectl create configmap {config_map} --from-file=export/deploy/config",
        f"kubectl create secret generic {secret} --from-file=ssl_config.txt",
        f"curl http://localhost:{flags('serving')['rest_api_port']}/v1/models/{MODEL}:predict",
        f"python -m export.client --server localhost:{flags('serving')['port']} --model {MODEL}",
    ]
    for start in wanted:
        assert any(line.startswith(start) for line in lines), start
    owner = "RUN_AS=$(id -u):$(id -g)"
    assert f"export {owner}" in lines
    assert any(line.startswith(f"{owner} SSL_CONFIG=") and line.endswith(" serving-tls") for line in lines)
    profiles = {line.split()[-1] for line in lines if "docker compose" in line}
    assert profiles == set(compose())


def test_python_of_the_readme_names_what_exists():
    for node in ast.walk(ast.parse("".join(blocks("python")))):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "client":
            assert hasattr(Client, node.attr)


# All together


def settings_of(name, folder, base):
    """Returns the settings of one of the containers, but for ports and folders; `base` holds the model's versions."""
    text = (CONFIG / "models.config").read_text("utf-8")
    (folder / "models.config").write_text(text.replace(f"/models/{MODEL}", str(base)))
    secret = ssl_config.ssl_config(server_tls.SERVER_KEY, server_tls.SERVER_CERTIFICATE, server_tls.AUTHORITY)
    (folder / "ssl_config").write_text(secret)
    here = {
        "model_config_file": str(folder / "models.config"),
        "ssl_config_file": str(folder / "ssl_config"),
        "model_name": MODEL,
        "model_base_path": str(base),
        "port": "0",
        "rest_api_port": "0",
    }
    values = {flag: here.get(flag, value.replace("/config/", f"{CONFIG}/")) for flag, value in flags(name).items()}
    return read_settings([f"--{flag}={value}" for flag, value in values.items()])


@pytest.fixture
def served(tmp_path):
    """Returns a function that starts the server of this project as a container would start the stock one."""
    with contextlib.ExitStack() as stack:

        def start(name, base):
            server = ModelServer(settings_of(name, tmp_path, base))
            stack.callback(server.stop)
            server.start()
            return server

        yield start


def test_a_server_runs_with_these_flags_and_files(tmp_path, toy_base, served):
    server = served("serving-tls", toy_base)
    (tmp_path / "ca").write_text(server_tls.AUTHORITY)
    (tmp_path / "pem").write_text(server_tls.CLIENT_CERTIFICATE)
    (tmp_path / "key").write_text(server_tls.CLIENT_KEY)
    tls = Tls(tmp_path / "ca", tmp_path / "pem", tmp_path / "key")
    with Client(f"localhost:{server.port}", MODEL, tls=tls) as client:
        assert client.translate(["ein"]) == ["EIN"]
    path = config("monitoring_config_file", "monitoring_config.txt").prometheus_config.path
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for page in (f"/v1/models/{MODEL}/metadata", path):
        assert opener.open(f"http://localhost:{server.rest_port}{page}", timeout=30).status == 200


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["serving", "kserve"])
def test_a_language_model_is_served_with_the_flags_of(name, lines_export, lines_run, served):
    server = served(name, lines_export)
    with Client(f"localhost:{server.port}", MODEL) as client:
        prompts, draw = ["abc", "", "bcd"], {"temperature": 1.5, "top_p": 0.9, "seed": 5}
        assert client.generate(prompts) == lines_run.generate(prompts)
        assert client.generate(prompts, **draw) == lines_run.generate(prompts, **draw)


@pytest.mark.nightly
def test_samples_of_several_clients_share_batches(lines_export, lines_run, served, monkeypatch):
    """Each is what it would be alone, and what one asks for in vain is an error for nobody else."""
    sizes = []
    run = LoadedModel._run
    monkeypatch.setattr(
        LoadedModel, "_run", lambda self, feeds, *rest: sizes.append(feed_size(feeds)) or run(self, feeds, *rest)
    )
    server = served("serving", lines_export)
    requests = [(["abc", "h", "", "fgha"][: 1 + number % 4], 0.5 + number % 3, 1 - number / 50) for number in range(24)]
    begin = threading.Barrier(len(requests))
    expected = [
        lines_run.generate(texts, temperature=temperature, top_p=top_p, seed=number)
        for number, (texts, temperature, top_p) in enumerate(requests)
    ]

    def ask(number):
        texts, temperature, top_p = requests[number]
        bad = number % 6 == 5
        draws = {
            "seed": row_seeds(number, range(len(texts))),
            "temperature": np.full(len(texts), np.nan if bad else temperature, np.float32),
            "top_p": np.full(len(texts), top_p, np.float32),
        }
        with Client(f"localhost:{server.port}", MODEL) as client:
            client.translate(["connected"])
            begin.wait(60)
            if bad:
                with pytest.raises(RequestRefused, match="`temperature`") as caught:
                    client.predict("sample", {"text": texts, **draws})
                assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT
                return expected[number]
            return client.predict("sample", {"text": texts, **draws})["text"].tolist()

    sizes.clear()
    with ThreadPoolExecutor(len(requests)) as pool:
        assert list(pool.map(ask, range(len(requests)), timeout=120)) == expected
    assert max(sizes) > 4, "some were answered together"


@pytest.mark.nightly
def test_each_text_of_a_batch_gets_its_own_heads(text_export, text_run, served, monkeypatch):
    """Requests for one head, for all, and without a word of them, from several clients that share batches."""
    sizes = []
    run = LoadedModel._run
    monkeypatch.setattr(
        LoadedModel, "_run", lambda self, feeds, *rest: sizes.append(feed_size(feeds)) or run(self, feeds, *rest)
    )
    server = served("serving", text_export)
    texts = ["the horse sees", "red", "a girl", "my house burns"]
    expected = {text: weights for text, (*_, weights) in zip(texts, text_run.attention(texts), strict=True)}
    begin = threading.Barrier(12)

    def ask(number):
        text, head = texts[number % 4], (0, None, -1)[number % 3]
        choice = {} if head is None else {"head": np.int32([head]), "layer": np.int32([0])}
        with Client(f"localhost:{server.port}", MODEL) as client:
            client.translate(["connected"])
            begin.wait(60)
            received = client.predict("attention_all", {"text": [text], **choice})["cross"][0]
        weights = expected[text] if head is None else expected[text][:, [head]]
        _, heads, rows, columns = weights.shape
        np.testing.assert_allclose(received[:, :heads, :rows, :columns], weights, atol=1e-4)
        assert not received[:, heads:].any()

    sizes.clear()
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(ask, range(12), timeout=120))
    assert max(sizes) > 1, "some were answered together"


@pytest.mark.nightly
def test_several_texts_of_a_request_have_a_layer_each_or_none(text_export, served):
    server = served("serving", text_export)
    with Client(f"localhost:{server.port}", MODEL) as client:
        with pytest.raises(RequestRefused, match="must have equal 0th-dimension size"):
            client.predict("attention_all", {"text": ["red", "a"]})
        everything = {name: np.full(2, ALL, np.int32) for name in ("layer", "head")}
        assert client.predict("attention_all", {"text": ["red", "a"], **everything})["cross"].shape[:3] == (2, 1, 2)
    body = {
        "signature_name": "attention_all",
        "instances": [{"text": "red", "layer": 0, "head": head} for head in (0, 1)],
    }
    request = urllib.request.Request(
        f"http://localhost:{server.rest_port}/v1/models/{MODEL}:predict", json.dumps(body).encode()
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    first, second = json.load(opener.open(request, timeout=30))["predictions"]
    assert np.shape(first["cross"])[:2] == (1, 1) and first["cross"] != second["cross"]


def feed_size(feeds):
    return len(next(iter(feeds.values())))

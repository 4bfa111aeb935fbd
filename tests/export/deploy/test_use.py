"""The deployment files in use: as the README says, and by a server."""

import ast
import importlib
import re
import shlex
import urllib.request

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
from export.client import Client, Tls, cli
from export.deploy import ssl_config
from export.serve import read_settings
from export.server import ModelServer

# The README


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def readme_commands():
    return [shlex.split(line) for line in "".join(blocks("")).replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize(("module", "parse"), [("export.client", cli._parse), ("export.batch", batch_cli._parse)])
def test_commands_of_the_readme_parse(module, parse):
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


def test_a_server_runs_with_these_flags_and_files(tmp_path, toy_base):
    """The server of this project, started as Compose would start the stock one, but for ports and folders."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / MODEL).symlink_to(toy_base)
    text = (CONFIG / "models.config").read_text("utf-8")
    (tmp_path / "models.config").write_text(text.replace("/models/", f"{tmp_path}/models/"))
    secret = ssl_config.ssl_config(server_tls.SERVER_KEY, server_tls.SERVER_CERTIFICATE, server_tls.AUTHORITY)
    (tmp_path / "ssl_config").write_text(secret)
    line = " ".join(compose()["serving-tls"]["command"])
    for there, here in {
        "/config/models.config": f"{tmp_path}/models.config",
        "/config/": f"{CONFIG}/",
        "/run/secrets/": f"{tmp_path}/",
        "=8500": "=0",
        "=8501": "=0",
    }.items():
        line = line.replace(there, here)
    (tmp_path / "ca").write_text(server_tls.AUTHORITY)
    (tmp_path / "pem").write_text(server_tls.CLIENT_CERTIFICATE)
    (tmp_path / "key").write_text(server_tls.CLIENT_KEY)
    server = ModelServer(read_settings(line.split()))
    server.start()
    try:
        tls = Tls(tmp_path / "ca", tmp_path / "pem", tmp_path / "key")
        with Client(f"localhost:{server.port}", MODEL, tls=tls) as client:
            assert client.translate(["ein"]) == ["EIN"]
        path = config("monitoring_config_file", "monitoring_config.txt").prometheus_config.path
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for page in (f"/v1/models/{MODEL}/metadata", path):
            assert opener.open(f"http://localhost:{server.rest_port}{page}", timeout=30).status == 200
    finally:
        server.stop()

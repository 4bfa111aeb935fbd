"""A real export behind a real server, asked over gRPC and REST: the answers are those of Python."""

import json
import re
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

from export.client import Client
from export.heatmap import attention_heatmap
from training.data import load_data

SECONDS = 60


@pytest.fixture(scope="module")
def addresses(text_export):
    """The gRPC and REST ports of `python -m export.serve`."""
    flags = ["--port=0", "--rest_api_port=0", "--model_name=en-de", f"--model_base_path={text_export}"]
    command = [sys.executable, "-m", "export.serve", *flags]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stdout:
            if found := re.search(r"gRPC on \S+:(\d+), REST on \S+:(\d+)", line):
                yield found[1], found[2]
                break
        else:
            pytest.fail(server.stderr.read())
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=SECONDS)
    assert (server.returncode, errors) == (0, "")


@pytest.fixture(scope="module")
def texts(text_spec):
    return [*load_data(text_spec).split("test").source, "", "😀 … ß"]


def test_grpc(addresses, text_run, texts, tmp_path):
    with Client(f"localhost:{addresses[0]}", "en-de", timeout=SECONDS) as client:
        assert client.translate(texts) == text_run.translate(texts)
        answers = client.attention(texts[:5])
    for answer, (source, target, weights) in zip(answers, text_run.attention(texts[:5]), strict=True):
        assert (answer.source_tokens, answer.target_tokens) == (source, target)
        np.testing.assert_allclose(answer.attention, weights, atol=1e-5)
    assert [answer.text for answer in answers] == text_run.translate(texts[:5])
    attention_heatmap(source, target, answers[-1].attention, tmp_path / "attention.png")
    assert (tmp_path / "attention.png").stat().st_size > 1000


def test_rest(addresses, text_run, texts):
    def ask(body):
        url = f"http://localhost:{addresses[1]}/v1/models/en-de:predict"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, json.dumps(body).encode(), timeout=SECONDS) as response:
            return json.load(response)

    expected = text_run.translate(texts)
    by_row = ask({"instances": texts})["predictions"]
    assert [row["text"] for row in by_row] == expected
    assert all(row["log_prob"] < 0 for row in by_row)
    assert ask({"inputs": {"text": texts}})["outputs"]["text"] == expected
    attention = ask({"signature_name": "attention", "inputs": {"text": texts[:1]}})["outputs"]
    np.testing.assert_allclose(np.sum(attention["attention"], axis=-1), 1.0, rtol=1e-5)

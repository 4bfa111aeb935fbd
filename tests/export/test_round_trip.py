"""A real export behind a server, asked over gRPC and REST: the answers are those of Python."""

import json
import os
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


@pytest.fixture(scope="session")
def texts(text_spec):
    return [*load_data(text_spec).split("test").source, "", "😀 … ß"]


def ask_over_rest(port, body):
    url = f"http://localhost:{port}/v1/models/en-de:predict"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, json.dumps(body).encode(), timeout=SECONDS) as response:
        return json.load(response)


def test_a_client_of_a_real_export(text_server, text_run, texts, tmp_path):
    expected = text_run.translate(texts)
    with Client(f"localhost:{text_server.port}", "en-de", timeout=SECONDS) as client:
        assert client.translate(texts) == expected
        answers = client.attention(texts[:5])
    for answer, (source, target, weights) in zip(answers, text_run.attention(texts[:5]), strict=True):
        assert (answer.source_tokens, answer.target_tokens) == (source, target)
        np.testing.assert_allclose(answer.attention, weights, atol=1e-5)
    assert [answer.text for answer in answers] == expected[:5]
    attention_heatmap(source, target, answers[-1].attention, tmp_path / "attention.png")
    assert (tmp_path / "attention.png").stat().st_size > 1000
    by_row = ask_over_rest(text_server.rest_port, {"instances": texts})["predictions"]
    assert [row["text"] for row in by_row] == expected and all(row["log_prob"] < 0 for row in by_row)
    outputs = ask_over_rest(text_server.rest_port, {"inputs": {"text": texts}})["outputs"]
    assert outputs["text"] == expected
    body = {"signature_name": "attention", "inputs": {"text": texts[:1]}}
    attention = ask_over_rest(text_server.rest_port, body)["outputs"]["attention"]
    np.testing.assert_allclose(attention[0], answers[0].attention, atol=1e-5)


@pytest.mark.nightly
def test_in_processes_of_their_own_with_a_warm_up(text_export, text_run, texts):
    """`python -m export.serve`, and `python -m export.client`."""
    flags = ["--port=0", "--rest_api_port=0", "--model_name=en-de", f"--model_base_path={text_export}"]
    command, quiet = [sys.executable, "-m", "export.serve", *flags], {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet)
    try:
        found = next(filter(None, (re.search(r"gRPC on \S+:(\d+), REST on \S+:(\d+)", line) for line in server.stdout)))
        command = [sys.executable, "-m", "export.client", f"--server=localhost:{found[1]}", "--model=en-de"]
        given = "".join(f"{text}\n" for text in texts)
        asked = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=SECONDS)
        assert asked.stdout.splitlines() == text_run.translate(texts)
        by_row = ask_over_rest(found[2], {"instances": texts})["predictions"]
        assert [row["text"] for row in by_row] == text_run.translate(texts)
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=SECONDS)
    assert (server.returncode, errors) == (0, "")

"""Load on a server of a few lines: what is counted, and when requests are sent."""

import contextlib
import threading
import time
from concurrent import futures

import grpc
import pytest

from benchmarks.serving import felt
from benchmarks.serving.load import PROTOCOLS, Felt, _Asker

TEXTS = ["one", "two", "three"]


@contextlib.contextmanager
def shouting(answer):
    """Serves `answer(text, context)` for the length of the block, and yields the address."""
    handler = grpc.unary_unary_rpc_method_handler(lambda text, context: answer(text.decode(), context).encode())
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("peer.Translator", {"Translate": handler})])
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0).wait()


def test_answers_failures_and_wrong_answers_are_counted():
    asked = [0]

    def answer(text, context):
        asked[0] += 1
        if asked[0] > len(TEXTS):  # after the first, which say what is right
            if text == "two":
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
            if text == "three":
                return "other"
        return text.upper()

    with shouting(answer) as address:
        asker = _Asker(address, PROTOCOLS["text"], TEXTS)
        for outcome in (asker.wait(clients=2, seconds=0.2), asker.at_rate(rate=100, seconds=0.3)):
            found = Felt(**outcome)
            failed = sum(found.failures.values())
            assert set(found.failures) == {"RESOURCE_EXHAUSTED"}
            assert found.answers and abs(failed - found.answers / 2) <= 2 and abs(found.wrong - found.answers / 2) <= 2
            assert 0 < found.milliseconds[0] <= found.milliseconds[1] <= found.p99


def test_at_a_rate_requests_wait_for_no_answer():
    """Each waits as long as all before it together, which clients that wait for their answers would not see."""
    one_at_a_time = threading.Lock()

    def slowly(text, context):
        with one_at_a_time:
            time.sleep(0.02)
        return text

    with shouting(slowly) as address:
        asker = _Asker(address, PROTOCOLS["text"], TEXTS)
        closed, opened = Felt(**asker.wait(clients=1, seconds=0.3)), Felt(**asker.at_rate(rate=200, seconds=0.3))
    assert closed.p99 < 100 < opened.p99
    assert opened.answers == 60


class Faster:
    """A load whose wait grows with the rate."""

    def __init__(self):
        self.rates = []

    def at_rate(self, rate, seconds):
        self.rates.append(rate)
        return Felt((rate, rate, 4 * rate), rate, 10, {}, 0)


def test_rates_rise_until_one_in_a_hundred_waits_too_long():
    load = Faster()
    curve = list(felt._rising(load, 1.0))
    assert load.rates == pytest.approx([20.0 * 1.25**power for power in range(len(load.rates))])
    assert [each.p99 <= felt.LIMIT for each in curve] == [True] * (len(curve) - 1) + [False]


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    felt.plot({"ours": list(felt._rising(Faster(), 1.0))}, tmp_path / "clients.png")
    assert (tmp_path / "clients.png").stat().st_size > 1000

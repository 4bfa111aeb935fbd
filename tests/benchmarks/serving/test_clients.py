"""Clients of a server of a few lines: what is counted, and when requests are sent."""

import contextlib
import threading
import time
from concurrent import futures

import grpc
import pytest

from benchmarks.serving import beside_ctranslate2 as cases
from benchmarks.serving.clients import Counted, Load, Tally
from benchmarks.serving.protocol import PROTOCOLS, Response

REQUESTS = [["one"], ["two"], ["three"]]


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


def run(load, clients, seconds):
    load.start(clients)
    time.sleep(seconds)
    return Tally.of(load.stop())


def test_responses_failures_and_wrong_responses_are_counted():
    asked = [0]

    def answer(text, context):
        asked[0] += 1
        if asked[0] > len(REQUESTS):  # after the first, which are the right ones
            if text == "two":
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
            if text == "three":
                return "other"
        return text.upper()

    with shouting(answer) as address:
        load = Load(address, PROTOCOLS["text"], REQUESTS)
        expected = load.answer_each()
        assert expected == [Response(("ONE",)), Response(("TWO",)), Response(("THREE",))]
        for found in (run(load, 2, 0.2), Tally.of(load.at_rate(rate=100, seconds=0.3))):
            wrong = found.wrong(lambda version: expected)
            assert set(found.failures) == {"RESOURCE_EXHAUSTED: full"}
            assert found.responses and abs(found.failed - found.responses / 2) <= 2
            assert abs(wrong - found.responses / 2) <= 2
            assert 0 < found.milliseconds[0] <= found.milliseconds[1] <= found.milliseconds[2]


def test_at_a_rate_requests_wait_for_no_response():
    """The latency of each includes that of all before it, which a closed loop would not show."""
    one_at_a_time = threading.Lock()

    def slowly(text, context):
        with one_at_a_time:
            time.sleep(0.02)
        return text

    with shouting(slowly) as address:
        load = Load(address, PROTOCOLS["text"], REQUESTS)
        closed, opened = run(load, 1, 0.3), Tally.of(load.at_rate(rate=200, seconds=0.3))
    assert 2 * closed.milliseconds[0] < opened.milliseconds[2]  # by far, and however slow the machine is
    assert opened.responses == 60


class Faster:
    """A load whose wait grows with the rate."""

    def __init__(self):
        self.rates = []

    def at_rate(self, rate, seconds):
        self.rates.append(rate)
        return Tally(1.0, [Counted(0, 0, Response(("one",)), int(rate))], {}, (rate, rate, 4 * rate, 5 * rate))


def test_rates_rise_until_one_in_a_hundred_waits_too_long():
    load = Faster()
    curve = list(cases.rising_rates(load, 1.0))
    assert load.rates == pytest.approx([20.0 * 1.25**power for power in range(len(load.rates))])
    assert [each.milliseconds[2] <= cases.LIMIT for each in curve] == [True] * (len(curve) - 1) + [False]


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    cases.plot({"ours": list(cases.rising_rates(Faster(), 1.0))}, tmp_path / "clients.png")
    assert (tmp_path / "clients.png").stat().st_size > 1000

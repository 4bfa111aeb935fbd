"""The client class, against a running server and a scripted one."""

import re
import threading

import grpc
import numpy as np
import pytest

from export.client import Classification, Client, RequestRefused
from export.client.api import BATCH_SIZE, IN_FLIGHT, MAX_TIMEOUT
from export.wire.protos import meta_graph_pb2, types_pb2
from export.wire.tensors import to_array
from zoo.errors import InputError

SECONDS = 60


@pytest.fixture(scope="module")
def address(toy_server):
    return f"localhost:{toy_server.port}"


@pytest.fixture
def client(address):
    with Client(address, model="toy") as client:
        yield client


def test_translate_and_predict(client):
    assert client.translate(["ein", "Maß", ""]) == ["EIN", "MAß", ""]
    outputs = client.predict(inputs={"text": ["ein", b"\xff"]})
    assert outputs["text"].tolist() == ["EIN", "\ufffd"]
    np.testing.assert_allclose(outputs["log_prob"], [-0.3, -0.1], rtol=1e-6)
    assert outputs["log_prob"].dtype == np.float32
    assert client.translate([]) == []


def test_predict_asks_any_signature(client):
    for x in (np.array([[1, 0, 0]], np.float32), [[1.0, 0.0, 0.0]]):
        outputs = client.predict("multiply", {"x": x}, outputs=["y"])
        assert {name: array.tolist() for name, array in outputs.items()} == {"y": [[1.0, 2.0]]}


def test_attention_comes_without_padding(client):
    first, second = client.attention(["añ", "日本語"])
    assert (first.text, first.source_tokens, first.target_tokens) == ("Añ", ["a", "ñ"], ["A", "ñ"])
    assert (first.attention.shape, second.attention.shape) == ((2, 3, 2, 2), (2, 3, 3, 3))
    np.testing.assert_array_equal(second.attention[1, 2], np.eye(3))


def test_refusals_carry_the_status_code(client, address):
    with pytest.raises(RequestRefused, match='FAILED_PRECONDITION.*"nope"') as caught:
        client.predict("nope", {"text": ["a"]})
    assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(RequestRefused, match="NOT_FOUND.*other"):
        Client(address, model="other").translate(["a"])
    with Client(address, model="toy", timeout=0.05) as hasty, pytest.raises(RequestRefused, match=r"0\.05 s"):
        hasty.predict("slow", {"steps": 300_000})


def test_arguments_that_are_none(client, address):
    with pytest.raises(InputError, match="list"):
        client.translate("ein")
    for server in ("localhost", "localhost:http", ":8500", "", "localhost:0", "localhost:65536"):
        with pytest.raises(InputError, match=f"HOST:PORT.*{server!r}"):
            Client(server, model="toy")
    for timeout in (0.0, -1.0, 1e20, float("inf"), float("nan")):
        with pytest.raises(InputError, match=re.escape("`timeout`") + ".*" + re.escape(f"timeout={timeout:g}")):
            Client("localhost:1", timeout=timeout)
    with Client(address, model="toy", timeout=MAX_TIMEOUT) as patient:
        assert patient.translate(["ein"]) == ["EIN"]


# Tasks


def test_a_model_needs_no_name(scripted_client, service):
    assert scripted_client.translate(["ein"]) == ["EIN"]
    assert service.requests[0].model_spec.name == "default"


def test_classify(scripted_client, service):
    answers = scripted_client.classify(["x", "y"])
    assert answers == [Classification("b", {"a": 0.25, "b": 0.75})] * 2
    assert sorted(service.requests[0].output_filter) == ["classes", "label", "probabilities"]


def numbers_sent(request):
    """Returns the inputs but for the texts, and checks their types."""
    values = {name: to_array(proto) for name, proto in request.inputs.items() if name != "text"}
    types = {name: array.dtype.name for name, array in values.items()}
    assert types == {"seed": "int32", "temperature": "float32", "top_p": "float32"}
    return {name: array.tolist() for name, array in values.items()}


def test_generate_asks_for_the_default_or_a_draw(scripted_client, service):
    assert scripted_client.generate(["ein"]) == ["EIN"]
    assert scripted_client.generate(["ein"], temperature=0.5, top_p=0.75, seed=7) == ["EIN"]
    default, draw = service.requests
    assert (default.model_spec.signature_name, set(default.inputs)) == ("serving_default", {"text"})
    assert draw.model_spec.signature_name == "sample"
    assert numbers_sent(draw) == {"seed": [7], "temperature": [0.5], "top_p": [0.75]}


def test_each_text_is_drawn_with_a_seed_of_its_own(scripted_client, service):
    scripted_client.generate(map(str, range(BATCH_SIZE + 2)), temperature=0.5, seed=7)
    by_size = sorted(service.requests, key=lambda request: -len(request.inputs["text"].string_val))
    whole, rest = map(numbers_sent, by_size)
    seeds = whole["seed"] + rest["seed"]
    assert len(set(seeds)) == BATCH_SIZE + 2 and seeds[0] == 7
    assert rest["temperature"] == [0.5, 0.5] and rest["top_p"] == [1.0, 1.0]


def test_older_models_take_one_seed_for_all_texts(scripted_client, service):
    def refuse_vectors(request, context):
        if request.inputs["seed"].tensor_shape.dim:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "scalar")

    service.before = refuse_vectors
    with pytest.raises(RequestRefused, match="scalar"):
        scripted_client.generate(["ein", "zwei"], temperature=0.5)
    info = meta_graph_pb2.TensorInfo(dtype=types_pb2.DT_INT32, tensor_shape={})
    service.signatures = {"sample": meta_graph_pb2.SignatureDef(inputs={"seed": info})}
    assert scripted_client.generate(iter(["ein", "zwei"]), temperature=0.5, seed=7) == ["EIN", "ZWEI"]
    assert numbers_sent(service.requests[-1]) == {"seed": 7, "temperature": 0.5, "top_p": 1.0}


def test_draws_out_of_range_are_never_sent(scripted_client, service):
    for name, value in (
        ("temperature", np.nan),
        ("temperature", -1.0),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("seed", 1 << 31),
    ):
        with pytest.raises(InputError, match=f"`{name}`.*{name}={value}"):
            scripted_client.generate(["ein"], **{"temperature": 1.0, name: value})
    assert service.requests == []


def test_an_output_that_the_model_does_not_have(scripted_client, service):
    service.before = lambda request, _: request.ClearField("output_filter") or request.output_filter.append("label")
    with pytest.raises(InputError, match="text.*label"):
        scripted_client.translate(["a"])


def test_types_of_inputs(scripted_client, service):
    for value, dtype, shape in (
        (["a\0", b"\xff"], "object", (2,)),
        ("a", "object", ()),
        ([1, 2], "int32", (2,)),
        (0.5, "float32", ()),
        (np.float64(0.5), "float64", ()),
        ([True], "bool", (1,)),
    ):
        scripted_client.predict(inputs={"text": ["a"], "other": value})
        sent = to_array(service.requests[-1].inputs["other"])
        assert (sent.dtype.name, sent.shape) == (dtype, shape)
    assert to_array(service.requests[0].inputs["other"]).tolist() == [b"a\0", b"\xff"]
    for value in ([["a"], ["b", "c"]], [1j], [None]):
        with pytest.raises(InputError, match="'x'"):
            scripted_client.predict(inputs={"x": value})


# Many requests


def test_long_inputs_go_in_several_requests_and_come_back_in_order(scripted_client, service):
    others = threading.Event()

    def hold_the_first(request, _):
        if len(service.requests) == IN_FLIGHT:
            others.set()
        if to_array(request.inputs["text"])[0] == b"line 0":
            assert others.wait(SECONDS), "only one request at a time"

    service.before = hold_the_first
    texts = [f"line {number}" for number in range(2 * IN_FLIGHT * BATCH_SIZE + 1)]
    assert scripted_client.translate(iter(texts)) == [text.upper() for text in texts]
    assert sorted({len(to_array(request.inputs["text"])) for request in service.requests}) == [1, BATCH_SIZE]


def test_a_stream_draws_no_more_than_it_needs(scripted_client):
    drawn = []

    def requests():
        for number in range(100):
            drawn.append(number)
            yield {"text": [str(number)]}

    stream = scripted_client.stream(requests(), in_flight=3)
    assert next(stream)["text"].tolist() == ["0"]
    assert drawn == [0, 1, 2]
    stream.close()


def test_a_pause_lets_the_answers_out(scripted_client):
    before_the_pause = {"text": ["a"]}
    heard = []

    def requests():
        yield before_the_pause
        yield None
        assert heard == [["A"]], "the answer is out before the stream waits for more"
        yield {"text": ["b"]}

    for answer in scripted_client.stream(requests()):
        heard.append(answer["text"].tolist())
    assert heard == [["A"], ["B"]]


def test_an_error_cancels_what_is_under_way(scripted_client, service):
    arrived, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    def fail_the_first(request, context):
        if to_array(request.inputs["text"])[0] == b"0":
            assert arrived.acquire(timeout=SECONDS) and arrived.acquire(timeout=SECONDS)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        ended = threading.Event()
        context.add_callback(ended.set)
        context.add_callback(cancelled.release)
        arrived.release()
        assert ended.wait(SECONDS)

    service.before = fail_the_first
    with pytest.raises(RequestRefused, match="INVALID_ARGUMENT: no"):
        list(scripted_client.stream({"text": [str(number)]} for number in range(3)))
    for _ in range(2):
        assert cancelled.acquire(timeout=SECONDS / 10)

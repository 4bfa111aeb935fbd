"""A server whose models attend as scripted, for tests of the explorer: no TensorFlow, any size, any words."""

import threading

import numpy as np
from support.scripted_server import Scripted, serving

from export.wire.protos import get_model_metadata_pb2, predict_pb2
from export.wire.tensors import to_array, to_proto
from zoo.explorer import AnswerView, Attention, View

__all__ = ["ScriptedModels", "serving", "translation"]

LAYERS, HEADS = 2, 3
INPUTS = {"attention_all": ["text", "layer"], "attention_nbest": ["text", "hypothesis", "layer"]}
INSIDE = ["text", "source_tokens", "target_tokens", "decoder_tokens", "encoder", "cross", "decoder"]
OUTPUTS = {
    "translator": {
        "serving_default": ["text", "log_prob"],
        "nbest": ["texts", "log_probs"],
        "attention_all": INSIDE,
        "attention_nbest": INSIDE,
    },
    "classifier": {
        "serving_default": ["label", "classes", "probabilities"],
        "attention_all": ["tokens", "encoder"],
    },
    "continuer": {
        "serving_default": ["text", "log_prob"],
        "score": ["log_prob", "num_tokens"],
        "attention_all": ["tokens", "target_tokens", "decoder"],
    },
    "deaf": {"serving_default": ["text"]},
}


class ScriptedModels(Scripted):
    """Serves the models of `OUTPUTS`. Words are tokens; a translator turns them around.

    Attributes:
        release: Requests wait for it while it is clear.
        cancelled: Set when a request was cancelled while it waited.
    """

    def __init__(self):
        super().__init__()
        self.release, self.cancelled = threading.Event(), threading.Event()
        self.release.set()

    def GetModelMetadata(self, request, context):
        name = request.model_spec.name
        if name not in OUTPUTS:
            import grpc

            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({name})")
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for signature, outputs in OUTPUTS[name].items():
            definition = signatures.signature_def[signature]
            for key in INPUTS.get(signature, ["text"]):
                definition.inputs[key].name = key
            for key in outputs:
                definition.outputs[key].name = key
        response.metadata["signature_def"].Pack(signatures)
        return response

    def Predict(self, request, context):
        self.requests.append(request)
        self.before(request, context)
        if not self.release.is_set():
            context.add_callback(self.cancelled.set)
            self.release.wait(20)
        inputs = {name: to_array(proto) for name, proto in request.inputs.items()}
        text = inputs["text"].ravel()[0].decode()
        answer = getattr(self, f"{request.model_spec.name}_{request.model_spec.signature_name}")(text, inputs)
        response = predict_pb2.PredictResponse()
        for name, values in answer.items():
            if not request.output_filter or name in request.output_filter:
                response.outputs[name].CopyFrom(to_proto(np.asarray(values)))
        return response

    def translator_serving_default(self, text, inputs):
        return {"text": [turned(text)], "log_prob": np.float32([-0.5])}

    def translator_nbest(self, text, inputs):
        return {"texts": [[turned(text), text, ""]], "log_probs": np.float32([[-0.5, -2, -1e30]])}

    def translator_attention_all(self, text, inputs):
        return self.inside(text, turned(text), inputs)

    def translator_attention_nbest(self, text, inputs):
        return self.inside(text, text if inputs["hypothesis"][0] == 1 else turned(text), inputs)

    def inside(self, text, answer, inputs):
        source, target = [*text.split(), "</s>"], [*answer.split(), "</s>"]
        tokens = {"source_tokens": source, "target_tokens": target, "decoder_tokens": ["<s>", *target[:-1]]}
        shapes = {"encoder": (source, source), "cross": (target, source), "decoder": (target, target)}
        return {"text": [answer], **padded(tokens), **predictions(target), **weights(shapes, inputs)}

    def classifier_serving_default(self, text, inputs):
        probabilities = np.float32([[0.25, 0.75]])
        return {"label": ["<b>odd</b>"], "classes": [["even", "<b>odd</b>"]], "probabilities": probabilities}

    def classifier_attention_all(self, text, inputs):
        tokens = [*text.split(), "</s>"]
        return {**padded({"tokens": tokens}), **weights({"encoder": (tokens, tokens)}, inputs)}

    def continuer_serving_default(self, text, inputs):
        return {"text": [" and so on"], "log_prob": np.float32([-1.5])}

    def continuer_score(self, text, inputs):
        return {"log_prob": np.float32([-3]), "num_tokens": np.int32([len(text.split())])}

    def continuer_attention_all(self, text, inputs):
        words = text.split()
        tokens, following = ["<s>", *words], [*words, "</s>"]
        shapes = {"decoder": (tokens, tokens)}
        names = padded({"tokens": tokens, "target_tokens": following})
        return {**names, **predictions(following), **weights(shapes, inputs)}


def turned(text):
    return " ".join(reversed(text.split()))


def padded(tokens):
    """Returns tokens as outputs, one more than there are: padding."""
    return {name: [[token.encode() for token in [*row, ""]]] for name, row in tokens.items()}


def predictions(tokens):
    count = len(tokens)
    alternatives = [[token.encode(), b"<i>other</i>"] for token in [*tokens, ""]]
    return {
        "token_log_probs": np.float32([[-0.1] * count + [0]]),
        "alternatives": [alternatives],
        "alternative_log_probs": np.float32([[[-0.1, -2.5]] * count + [[0, 0]]]),
    }


def weights(shapes, inputs):
    """Returns attention of each kind, of all layers or of one; each row attends to the column with its number most."""
    found = {}
    for kind, (rows, columns) in shapes.items():
        near = np.abs(np.arange(len(rows))[:, None] - np.arange(len(columns))[None])
        scores = np.exp(-near[None, None] * np.arange(1, LAYERS * HEADS + 1).reshape(LAYERS, HEADS, 1, 1) / 3.0)
        if kind == "decoder":
            scores = scores * np.tri(len(rows))
        values = (scores / scores.sum(axis=-1, keepdims=True)).astype("float32")
        layer = inputs.get("layer")
        values = values if layer is None else values[[int(layer[0])]]
        values = np.pad(values, [(0, 0), (0, 0), (0, 1), (0, 1)])
        found |= {kind: values[None], f"{kind}_size": np.int32([[LAYERS, HEADS]])}
    return found


def random_attention(rows, columns, layers=1, heads=1):
    weights = np.random.default_rng(7).random((layers, heads, rows, columns)) ** 8
    return Attention(list((weights / weights.sum(axis=-1, keepdims=True)).astype("float32")))


def translation(source, target, layers=1, heads=1, text=None):
    """Returns a view with attention at random."""
    before = ["<s>", *target[:-1]]
    alternatives = [[(token, -0.1), ("other", -2.5)] for token in target]
    attention = {
        "cross": random_attention(len(target), len(source), layers, heads),
        "decoder": random_attention(len(target), len(target), layers, heads),
    }
    answer = AnswerView(" ".join(target), -1.0, 0, target, before, [-0.1] * len(target), alternatives, attention)
    encoder = {"encoder": random_attention(len(source), len(source), layers, heads)}
    return View("seq2seq", "made up", text or " ".join(source), source, encoder, [answer])

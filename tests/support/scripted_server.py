"""A gRPC server whose every answer is scripted, for tests of clients."""

import contextlib
from concurrent import futures

import grpc
import numpy as np

from export.client.api import IN_FLIGHT
from export.wire.protos import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc
from export.wire.tensors import to_array, to_proto


class Scripted(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Shouts back; `before` is called with each request and its context, and may end it.

    Attributes:
        signatures: What it says of its signatures, messages by name.
    """

    def __init__(self):
        self.before = lambda request, context: None
        self.requests = []
        self.signatures = {}

    def GetModelMetadata(self, request, context):
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=self.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def Predict(self, request, context):
        self.requests.append(request)
        self.before(request, context)
        texts = to_array(request.inputs["text"])
        response = predict_pb2.PredictResponse()
        for name, values in {
            "text": [text.upper() for text in texts],
            "label": [b"b"] * len(texts),
            "classes": [[b"a", b"b"]] * len(texts),
            "probabilities": np.tile(np.float32([0.25, 0.75]), (len(texts), 1)),
        }.items():
            if name in request.output_filter or (name == "text" and not request.output_filter):
                response.outputs[name].CopyFrom(to_proto(np.asarray(values)))
        return response


@contextlib.contextmanager
def serving(service, credentials=None, port=0):
    server = grpc.server(futures.ThreadPoolExecutor(2 * IN_FLIGHT))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    address = f"localhost:{port}"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0).wait()

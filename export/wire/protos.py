"""TensorFlow Serving's generated message classes, imported without TensorFlow itself.

The generated modules start with `from tensorflow.core.framework import …`, which would run the whole of
`tensorflow/__init__.py`: seconds for a client that needs a dozen message classes. The modules below
`tensorflow.core` are plain protobuf code, so a placeholder that only knows where the package lies is enough
while they are imported. A later `import tensorflow` finds the same message classes and works as always.
"""

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterator


@contextlib.contextmanager
def _placeholder_for_tensorflow() -> Iterator[None]:
    spec = None if "tensorflow" in sys.modules else importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        yield
        return
    placeholder = types.ModuleType("tensorflow")
    placeholder.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = placeholder
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


with _placeholder_for_tensorflow():
    from tensorflow.core.example import example_pb2
    from tensorflow.core.framework import tensor_pb2, types_pb2
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        input_pb2,
        model_management_pb2,
        model_pb2,
        model_service_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_log_pb2,
        prediction_service_pb2,
        prediction_service_pb2_grpc,
        regression_pb2,
    )
    from tensorflow_serving.config import file_system_storage_path_source_pb2, model_server_config_pb2

__all__ = [
    "classification_pb2",
    "example_pb2",
    "file_system_storage_path_source_pb2",
    "get_model_metadata_pb2",
    "get_model_status_pb2",
    "inference_pb2",
    "input_pb2",
    "meta_graph_pb2",
    "model_management_pb2",
    "model_pb2",
    "model_server_config_pb2",
    "model_service_pb2",
    "model_service_pb2_grpc",
    "predict_pb2",
    "prediction_log_pb2",
    "prediction_service_pb2",
    "prediction_service_pb2_grpc",
    "regression_pb2",
    "tensor_pb2",
    "types_pb2",
]

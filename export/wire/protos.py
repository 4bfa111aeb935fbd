"""TensorFlow Serving's generated message classes, imported without TensorFlow itself.

The generated modules start with `from tensorflow.core.framework import …`, which would run all of
`tensorflow/__init__.py`: seconds for a client that needs a dozen message classes. The modules below `tensorflow.core`
are plain protobuf code, so during their import a placeholder with the package's path is sufficient. A later
`import tensorflow` uses the same message classes and works as usual.
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


with _placeholder_for_tensorflow():  # `as` marks what this module exports
    from tensorflow.core.example import example_pb2 as example_pb2
    from tensorflow.core.framework import tensor_pb2 as tensor_pb2
    from tensorflow.core.framework import types_pb2 as types_pb2
    from tensorflow.core.protobuf import config_pb2 as config_pb2
    from tensorflow.core.protobuf import meta_graph_pb2 as meta_graph_pb2
    from tensorflow_serving.apis import classification_pb2 as classification_pb2
    from tensorflow_serving.apis import get_model_metadata_pb2 as get_model_metadata_pb2
    from tensorflow_serving.apis import get_model_status_pb2 as get_model_status_pb2
    from tensorflow_serving.apis import inference_pb2 as inference_pb2
    from tensorflow_serving.apis import input_pb2 as input_pb2
    from tensorflow_serving.apis import model_management_pb2 as model_management_pb2
    from tensorflow_serving.apis import model_pb2 as model_pb2
    from tensorflow_serving.apis import model_service_pb2 as model_service_pb2
    from tensorflow_serving.apis import model_service_pb2_grpc as model_service_pb2_grpc
    from tensorflow_serving.apis import predict_pb2 as predict_pb2
    from tensorflow_serving.apis import prediction_log_pb2 as prediction_log_pb2
    from tensorflow_serving.apis import prediction_service_pb2 as prediction_service_pb2
    from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service_pb2_grpc
    from tensorflow_serving.apis import regression_pb2 as regression_pb2
    from tensorflow_serving.config import file_system_storage_path_source_pb2 as file_system_storage_path_source_pb2
    from tensorflow_serving.config import model_server_config_pb2 as model_server_config_pb2

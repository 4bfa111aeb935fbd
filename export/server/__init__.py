"""A replacement for `tensorflow_model_server` with the official interfaces, independent of the rest of the project.

`export.serve` is its command and uses the names below. Of this project, the server imports only `export.wire`.
Dependencies have one direction; an arrow means "is used by":

    settings, config_files, logs, metrics → all others
    batching, models.signatures → models.saved_model → models.loader
    models.versions → models.manager → models.core → api.services → api.grpc_server, api.rest_server → model_server
    inference (message in, message out, on a loaded model) → models.loader, api.services

Only `models.saved_model` and `models.loader` require TensorFlow, which `ModelServer.start` imports.
"""

from export.server.errors import ServingError
from export.server.logs import write_to_stderr
from export.server.model_server import ModelServer
from export.server.settings import WITHOUT_EFFECT, ServerSettings, add_flags, check_settings, own_flags

__all__ = [
    "WITHOUT_EFFECT",
    "ModelServer",
    "ServingError",
    "ServerSettings",
    "add_flags",
    "check_settings",
    "own_flags",
    "write_to_stderr",
]

"""SavedModel export, the embedded model server and its client."""

import os

from zoo.runtime.extras import name_missing_extras

# gRPC's C++ code logs every failed connection, which would mix plain lines with JSON logs and responses. It reads this
# variable once, on import.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
name_missing_extras()

"""SavedModel export, the embedded model server and its client."""

import os

from zoo.extras import name_missing_extras

# gRPC's C++ side writes lines of its own for each connection that fails, into logs of JSON and among answers. It asks
# for this once, when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
name_missing_extras()

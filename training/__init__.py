"""Training: datasets, configurations, one loop, losses, metrics and evaluation."""

import zoo  # noqa: F401 - handles signals during the imports of a command

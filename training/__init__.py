"""Training: datasets, configurations, one loop, losses, metrics and evaluation."""

import zoo  # noqa: F401 - lets a signal end a command that still imports what it needs

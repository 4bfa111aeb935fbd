"""Runs a process of a training of several as a child, and converts an abort into a one-line message.

JAX's C++ code aborts a process whose coordinator has ended, or that the others did not join in time.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from training.hardware.cluster import Cluster

_WORKER = "ATTENTION_ZOO_WORKER"
# Logs of C++ code, and the traces of an abort.
_NOISE = re.compile(
    rb"[IWEF]\d{4} |WARNING: All log messages before absl|\*\*\* |    @ |terminate called|  what\(\)|RPC: /|\s*$"
    rb"|.*(?:\[Gloo\] |peer ranks)|Additional GRPC|:UNKNOWN:Error received"
    # The stack of Python at an abort, unlike the traceback of an exception.
    rb"|Fatal Python error|Current thread|Thread 0x|  File \"[^\"]*\", line \d+ in |Extension modules"
)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def is_worker() -> bool:
    """Returns whether this process is a child of `supervise`."""
    return _WORKER in os.environ


def die_with_parent() -> None:
    """Makes the system kill this process when its parent is killed, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def supervise(cluster: Cluster, extra: Sequence[str] = ()) -> tuple[int, str]:
    """Runs this process's command, with extra arguments, as a child, and forwards its output and signals.

    Returns:
        Its exit status, and the reason if it was aborted or killed, else an empty string.
    """
    command = [sys.executable, *sys.orig_argv[1:], *extra]
    environment = {**os.environ, _WORKER: "1"}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: _pass_on(child, number))
    noise: list[bytes] = []
    output = threading.Thread(target=_copy, args=[child.stdout, sys.stdout.buffer, noise])
    output.start()
    _copy(child.stderr, sys.stderr.buffer, noise)
    output.join()
    status = child.wait()
    if status >= 0:
        return status, ""
    if status == -signal.SIGABRT:
        return 1, _cause(b"".join(noise).decode(errors="replace"), cluster)
    return 128 - status, f"this process, {cluster.process_id}, was ended by {signal.Signals(-status).name}"


def _copy(source: Any, target: Any, noise: list[bytes]) -> None:
    """Copies lines as they arrive; those of C++ code are collected in `noise` instead."""
    for line in source:
        if _NOISE.match(line):
            noise.append(line)
        else:
            target.write(line)
            target.flush()


def _pass_on(child: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)


def _cause(noise: str, cluster: Cluster) -> str:
    """Returns the reason why JAX aborted a process."""
    if "DEADLINE_EXCEEDED" in noise:
        return f"not all {cluster.num_processes} processes joined {cluster.coordinator} within {cluster.seconds} s"
    if "ALREADY_EXISTS" in noise or "different incarnation" in noise:
        return f"--process_id {cluster.process_id} is used twice at {cluster.coordinator}"
    if "UNAVAILABLE" in noise or "Socket closed" in noise:
        return f"process 0 of {cluster.num_processes}, the coordinator at {cluster.coordinator}, is missing"
    last = noise.strip().splitlines()[0] if noise.strip() else "no reason given"
    return f"JAX ended process {cluster.process_id} of {cluster.num_processes}: {last}"

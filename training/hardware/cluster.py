"""The processes of one training, from the command line or detected in a cluster; without a backend."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from zoo.errors import InputError

# Variables by which JAX detects clusters, see jax/_src/clusters, and those of TPU machines.
_SIGNS = (
    *("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "JOB_COMPLETION_INDEX"),
    *("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "JAX_COORDINATOR_ADDRESS"),
)

JOIN_SECONDS = 300
"""Default of the seconds that a process waits for the others."""


@dataclass(frozen=True)
class Cluster:
    """The address, size and index of a process in a training of several processes.

    Attributes:
        coordinator: `HOST:PORT` at which process 0 listens and all others connect.
        num_processes: Number of processes.
        process_id: Index of this process, from 0.
        seconds: Seconds to wait for the others.
    """

    coordinator: str
    num_processes: int
    process_id: int
    seconds: int = JOIN_SECONDS

    def __post_init__(self) -> None:
        """Raises InputError for an invalid address or index."""
        host, _, port = self.coordinator.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            raise InputError(f"--coordinator must be HOST:PORT, such as 10.0.0.1:1234. Received: {self.coordinator!r}.")
        if not 0 <= self.process_id < self.num_processes:
            raise InputError(
                "--process_id must be at least 0 and smaller than --num_processes. "
                f"Received: --process_id {self.process_id} --num_processes {self.num_processes}."
            )

    @classmethod
    def of(
        cls, coordinator: str | None, num_processes: int | None, process_id: int | None, seconds: int
    ) -> Self | None:
        """Returns the cluster of the command line's options, or `None` if they are missing.

        Raises:
            InputError: If some options are missing or invalid.
        """
        options = {"--coordinator": coordinator, "--num_processes": num_processes, "--process_id": process_id}
        missing = [name for name, value in options.items() if value is None]
        if coordinator is None or num_processes is None or process_id is None:
            if len(missing) < len(options):
                raise InputError(
                    f"{', '.join(options)} must be passed together. Missing: {', '.join(missing)}. Without any of "
                    "them, the cluster is detected (SLURM, Kubernetes, TPU)."
                )
            return None
        return cls(coordinator, num_processes, process_id, seconds)

    def words(self) -> list[str]:
        """Returns the arguments of a command line for this cluster."""
        return [
            *("--coordinator", self.coordinator, "--num_processes", str(self.num_processes)),
            *("--process_id", str(self.process_id), "--join_seconds", str(self.seconds)),
        ]


def find_cluster(seconds: int, environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster that JAX detects, or `None` if there is none, or only this process.

    Args:
        seconds: Seconds to wait for the others.
        environment: The variables of the process; JAX is only imported if they name a cluster.
    """
    if not any(environment.get(sign) for sign in _SIGNS):
        return None
    detected = _detect(seconds)
    if detected is None or detected[1] < 2:
        return None
    return Cluster(*detected, seconds)


def _detect(seconds: int) -> tuple[str, int, int] | None:
    from jax._src.clusters import ClusterEnv

    parameters: Any = ClusterEnv.auto_detect_unset_distributed_params(
        os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, seconds
    )
    coordinator, num_processes, process_id = parameters[:3]
    if coordinator is None or num_processes is None or process_id is None:
        return None
    return str(coordinator), int(num_processes), int(process_id)

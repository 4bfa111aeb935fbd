"""The processes of one training, as they are named on the command line or found in a cluster; without a backend."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from zoo.errors import InputError

# What JAX's own detection goes by, see jax/_src/clusters; TPU machines name their workers.
_SIGNS = (
    *("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "JOB_COMPLETION_INDEX"),
    *("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "JAX_COORDINATOR_ADDRESS"),
)

JOIN_SECONDS = 300
"""How long a process waits for the others by default."""


@dataclass(frozen=True)
class Cluster:
    """Where a process stands among those that train together.

    Attributes:
        coordinator: `HOST:PORT` at which process 0 listens and all others find each other.
        num_processes: How many there are.
        process_id: Which one this is, from 0.
        seconds: How long it waits for the others.
    """

    coordinator: str
    num_processes: int
    process_id: int
    seconds: int = JOIN_SECONDS

    def __post_init__(self) -> None:
        """Raises InputError for numbers or an address that cannot be."""
        host, _, port = self.coordinator.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            raise InputError(f"--coordinator is HOST:PORT, such as 10.0.0.1:1234. Received: {self.coordinator!r}.")
        if not 0 <= self.process_id < self.num_processes:
            raise InputError(
                "--process_id counts from 0 and is smaller than --num_processes. "
                f"Received: --process_id {self.process_id} --num_processes {self.num_processes}."
            )

    @classmethod
    def of(
        cls, coordinator: str | None, num_processes: int | None, process_id: int | None, seconds: int
    ) -> Self | None:
        """Returns what the command line says, `None` where it says nothing.

        Raises:
            InputError: If it says a part, or something that cannot be.
        """
        said = {"--coordinator": coordinator, "--num_processes": num_processes, "--process_id": process_id}
        missing = [name for name, value in said.items() if value is None]
        if coordinator is None or num_processes is None or process_id is None:
            if len(missing) < len(said):
                raise InputError(
                    f"{', '.join(said)} belong together. Missing: {', '.join(missing)}. Without all of them the "
                    "cluster is asked (SLURM, Kubernetes, TPU)."
                )
            return None
        return cls(coordinator, num_processes, process_id, seconds)

    def words(self) -> list[str]:
        """Returns the arguments that say this on a command line."""
        return [
            *("--coordinator", self.coordinator, "--num_processes", str(self.num_processes)),
            *("--process_id", str(self.process_id), "--join_seconds", str(self.seconds)),
        ]


def find_cluster(seconds: int, environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster that JAX finds around this process, `None` where there is none or only this process.

    Args:
        seconds: How long a process waits for the others.
        environment: The variables of the process; where they name no cluster, JAX is not imported.
    """
    if not any(environment.get(sign) for sign in _SIGNS):
        return None
    found = _ask_jax(seconds)
    if found is None or found[1] < 2:
        return None
    return Cluster(*found, seconds)


def _ask_jax(seconds: int) -> tuple[str, int, int] | None:
    from jax._src.clusters import ClusterEnv

    asked: Any = ClusterEnv.auto_detect_unset_distributed_params(
        os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, seconds
    )
    coordinator, num_processes, process_id = asked[:3]
    if coordinator is None or num_processes is None or process_id is None:
        return None
    return str(coordinator), int(num_processes), int(process_id)

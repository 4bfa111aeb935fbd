"""Which versions of a model there are on disk, and which of them a policy asks for."""

from collections.abc import Collection
from pathlib import Path
from typing import TypeAlias

from export.server.errors import ServingError
from export.wire.protos import file_system_storage_path_source_pb2 as sources

Policy: TypeAlias = sources.FileSystemStoragePathSourceConfig.ServableVersionPolicy
Fingerprint = list[tuple[str, int, int]]


def list_versions(base_path: Path) -> dict[int, Path]:
    """Returns the version directories under `base_path` by number; other names are not versions.

    Raises:
        ServingError: There is no such directory, or it cannot be read.
    """
    try:
        return {int(entry.name): entry for entry in base_path.iterdir() if _is_number(entry.name) and entry.is_dir()}
    except (OSError, ValueError) as error:  # a `ValueError` for characters that no path has
        reason = getattr(error, "strerror", None) or error
        raise ServingError(
            f"--model_base_path must be a directory of versions. Received: {base_path} ({reason})"
        ) from error


def require_versions(base_path: Path) -> None:
    """Raises ServingError if there is no such directory, or no version in it."""
    if not list_versions(base_path):
        raise ServingError(
            f"No versions found under {base_path}. A version is a directory with a number for its name, "
            f"such as {base_path / '1'}, that holds a saved_model.pb."
        )


def choose_versions(policy: Policy, versions: Collection[int]) -> set[int]:
    """Returns the versions that a policy asks for, among those on disk; no policy means the newest one."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return set(versions)
    if choice == "specific":
        return set(policy.specific.versions) & set(versions)
    return set(sorted(versions)[-max(1, policy.latest.num_versions) :])


def fingerprint(path: Path) -> Fingerprint:
    """Returns something that changes whenever a file under `path` does; empty while files come and go."""
    try:
        files = [(str(file), file.stat()) for file in path.rglob("*")]
    except OSError:
        return []
    return sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in files)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) < 1 << 63

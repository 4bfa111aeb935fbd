"""Lists the versions of a model on disk, and selects those that match a version policy."""

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
    except (OSError, ValueError) as error:  # `ValueError` for characters that are invalid in paths
        reason = getattr(error, "strerror", None) or error
        raise ServingError(
            f"--model_base_path must be a directory of versions. Received: {base_path} ({reason})"
        ) from error


def require_versions(base_path: Path) -> None:
    """Raises ServingError if the directory is missing or contains no version."""
    if not list_versions(base_path):
        raise ServingError(
            f"No versions found under {base_path}. A version is a directory whose name is a number, "
            f"such as {base_path / '1'}, and that contains a saved_model.pb."
        )


def choose_versions(policy: Policy, versions: Collection[int]) -> set[int]:
    """Returns the versions on disk that match a policy; no policy means the newest version."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return set(versions)
    if choice == "specific":
        return set(policy.specific.versions) & set(versions)
    return set(sorted(versions)[-max(1, policy.latest.num_versions) :])


def fingerprint(path: Path) -> Fingerprint:
    """Returns names, times and sizes of the files under `path`; empty if files disappear meanwhile."""
    try:
        files = [(str(file), file.stat()) for file in path.rglob("*")]
    except OSError:
        return []
    return sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in files)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) < 1 << 63

"""Which versions of a model there are on disk, and which of them a policy asks for."""

from collections.abc import Collection
from pathlib import Path

from export.wire.protos import file_system_storage_path_source_pb2 as sources
from zoo.errors import InputError


def list_versions(base_path: Path) -> dict[int, Path]:
    """Returns the version directories under `base_path` by number; other names are not versions.

    Raises:
        InputError: There is no such directory, or it cannot be read.
    """
    try:
        return {int(entry.name): entry for entry in base_path.iterdir() if _is_number(entry.name) and entry.is_dir()}
    except (OSError, ValueError) as error:  # a `ValueError` for characters that no path has
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"--model_base_path must be a directory of versions. Received: {base_path} ({reason})"
        ) from error


def some_versions(base_path: Path) -> dict[int, Path]:
    """Returns what `list_versions` does.

    Raises:
        InputError: There is no such directory, or no version in it.
    """
    found = list_versions(base_path)
    if not found:
        raise InputError(
            f"No versions found under {base_path}. A version is a directory with a number for its name, "
            f"such as {base_path / '1'}, that holds a saved_model.pb."
        )
    return found


def wanted_versions(
    policy: sources.FileSystemStoragePathSourceConfig.ServableVersionPolicy, found: Collection[int]
) -> set[int]:
    """Returns the versions that a policy asks for, among those found; no policy means the newest one."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return set(found)
    if choice == "specific":
        return set(policy.specific.versions) & set(found)
    return set(sorted(found)[-max(1, policy.latest.num_versions) :])


def fingerprint(path: Path) -> list[tuple]:
    """Returns something that changes whenever a file under `path` does."""
    files = [(str(file), file.stat()) for file in path.rglob("*")]
    return sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in files)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) < 1 << 63

"""Files that are derived from tables: written into a folder, or compared with what is there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from everstep.core.errors import EverstepError


def write_files(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write every text under its name, and nothing else. Raises `EverstepError` when the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise EverstepError(
            f"cannot write to {folder} ({error.strerror})", mend="name a folder that this user can write"
        ) from error
    return tuple(folder / name for name in texts)


def stale_files(folder: Path, texts: Mapping[str, str], pattern: str) -> tuple[str, ...]:
    """Names of files that are missing or differ, and of those of the pattern that belong to nothing any more."""
    present = {path.name for path in folder.glob(pattern)}
    wrong = {name for name in present & texts.keys() if (folder / name).read_text(encoding="utf-8") != texts[name]}
    return tuple(sorted(wrong | (present ^ texts.keys())))


def shipped(package: str, folder: str, suffix: str) -> dict[str, str]:
    """The generated files that a package carries, by name; nothing is built."""
    found = resources.files(package) / folder
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(found.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(suffix)
    }

"""What `everstep rules` and `everstep dashboards` share: files of the package are written out or compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from everstep.core.derived import stale_files, write_files


def ship(folder: Path, texts: Mapping[str, str], *, pattern: str, check: bool, as_json: bool) -> int:
    """The exit code: with `check` 1 when a file in the folder is missing, differs or is superfluous."""
    if check:
        stale = stale_files(folder, texts, pattern)
        if as_json:
            print(json.dumps({"ok": not stale, "folder": str(folder), "stale": list(stale)}))
        else:
            print("\n".join(f"stale: {folder / name}" for name in stale) or f"{folder}: ok, {len(texts)} files")
        return 1 if stale else 0
    paths = [str(path) for path in write_files(folder, texts)]
    print(json.dumps({"folder": str(folder), "files": paths}) if as_json else "\n".join(paths))
    return 0

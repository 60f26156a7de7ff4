"""`python -m everstep.dashboards --write | --check`: renew the generated JSON, or fail when it is stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from everstep.dashboards.build import JSON, stale, write


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m everstep.dashboards",
        description="Build the Grafana dashboards.",
        epilog="example: python -m everstep.dashboards --write --output /var/lib/grafana/dashboards",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the files")
    what.add_argument("--check", action="store_true", help="exit 1 when a file is stale")
    parser.add_argument("--output", type=Path, default=JSON, help="folder (default: the one in the package)")
    options = parser.parse_args(arguments)
    if options.write:
        for path in write(options.output):
            sys.stdout.write(f"{path}\n")
        return 0
    names = stale(options.output)
    if names:
        sys.stderr.write(f"stale: {', '.join(names)}; run `python -m everstep.dashboards --write`\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())

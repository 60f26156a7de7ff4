"""`python -m everstep.alertrules --write | --check`: renew the generated files, or fail when they are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from everstep.alertrules.build import GENERATED, stale, write
from everstep.alertrules.rule import RUNBOOK_BASE


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m everstep.alertrules",
        description="Build Prometheus' rule files and Alertmanager's configuration from the metric and fault tables.",
        epilog="example: python -m everstep.alertrules --write --runbook-base https://docs.example.org/runbooks",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the files")
    what.add_argument("--check", action="store_true", help="exit 1 when a file is stale")
    parser.add_argument("--output", type=Path, default=GENERATED, help="folder (default: the one in the package)")
    parser.add_argument("--runbook-base", default=RUNBOOK_BASE, help="where the runbooks are published")
    options = parser.parse_args(arguments)
    if options.write:
        for path in write(options.output, options.runbook_base):
            sys.stdout.write(f"{path}\n")
        return 0
    names = stale(options.output)
    if names:
        sys.stderr.write(f"stale: {', '.join(names)}; run `python -m everstep.alertrules --write`\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())

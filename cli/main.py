"""The `everstep` command: every expected error becomes one line that says the mend."""

from __future__ import annotations

import os
import sys

from everstep.cli.commands import COMMANDS
from everstep.core.errors import EverstepError

USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 on success, 2 for bad input, 130 when interrupted; the console script exits with it."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(words)
    except EverstepError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        return _fail(_missing(error, words))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `everstep config show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(words: list[str]) -> int:
    from everstep.cli import dispatch  # needs typer, which a training image may not have

    code = dispatch.run(words or ["--help"])
    return code if words else USAGE


def _fail(problem: str) -> int:
    print(f"everstep: {problem}", file=sys.stderr)
    return USAGE


def _missing(error: ModuleNotFoundError, words: list[str]) -> str:
    """What to install; a missing module of our own is a bug and stays a traceback."""
    package = (error.name or "").partition(".")[0]
    if package in {"", "everstep"}:
        raise error
    extra = next((command.extra for command in COMMANDS if words[:1] == [command.name]), "cli")
    if package == "typer":
        extra = extra if extra in {"agent", "service", "all"} else "cli"
    return f"{package} is not installed; pip install 'everstep[{extra}]'"


if __name__ == "__main__":
    sys.exit(main())

"""From words to a subcommand: the top level only forwards, so that help costs no import of what it lists."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated

import typer
from typer.main import get_command

from everstep import __version__
from everstep.cli.commands import COMMANDS, Command
from everstep.core.errors import EverstepError


def run(words: list[str]) -> int:
    """The exit code of the command that the words name. Raises `EverstepError` for words that no command knows."""
    return _invoke(_application(), words, "everstep")


def _application() -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback()(_top)
    forwarding = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    for command in COMMANDS:
        register = app.command(command.name, help=command.summary, add_help_option=False, context_settings=forwarding)
        register(_forwarder(command))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"everstep {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keeps LLM training stepping: finds what breaks, names the cause, heals the job.

    Example: everstep demo --fault kill_process
    """


def _forwarder(command: Command) -> Callable[[typer.Context], None]:
    def forward(context: typer.Context) -> None:
        raise typer.Exit(_invoke(_load(command), context.args, f"everstep {command.name}"))

    return forward


def _load(command: Command) -> typer.Typer:
    found = getattr(importlib.import_module(command.module), command.attribute)
    if isinstance(found, typer.Typer):
        return found
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(found)
    return app


def _invoke(app: typer.Typer, words: list[str], name: str) -> int:
    try:
        code = get_command(app).main(args=words, prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else name
        problem = " ".join(error.format_message().split()).rstrip(".")
        raise EverstepError(problem, mend=f"see `{path} --help`") from error
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    return code if isinstance(code, int) else 0

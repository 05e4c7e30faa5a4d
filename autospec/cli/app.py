"""The `autospec` command: finds the subcommand, loads only its module, reports errors."""

from __future__ import annotations

import importlib
import sys

import click

from autospec import __version__
from autospec.errors import INTERRUPTED, AutospecError

NAME = "autospec"
COMPLETION = "_AUTOSPEC_COMPLETE"
"""The variable by which a shell asks for completions, as click has it."""

COMMANDS = {
    "bench": ("autospec.cli.bench", "Compare speculation settings on this machine."),
    "calibrate": ("autospec.cli.calibrate", "Measure what batches cost on this machine."),
    "check": ("autospec.cli.check", "Check a configuration file and its models' files."),
    "demo": ("autospec.cli.demo", "Show the whole job on a small real model pair."),
    "detect": ("autospec.cli.detect", "Show the GPUs, the CPU and the memory."),
    "doctor": ("autospec.cli.doctor", "Find what is wrong, and say how to mend it."),
    "explain": ("autospec.cli.explain", "Tell why a model runs as it does."),
    "fit": ("autospec.cli.fit", "Fit the power laws of older tools to a cost curve."),
    "import": ("autospec.cli.import_", "Turn a llama-server command line into a configuration."),
    "completion": ("autospec.cli.completion", "Print what a shell needs to complete commands."),
    "lab": ("autospec.cli.lab", "Compare stopping rules on recorded rounds."),
    "logs": ("autospec.cli.logs", "Show what happened, and what llama-server said."),
    "man": ("autospec.cli.man", "Print the manual page."),
    "off": ("autospec.cli.off", "Decode a model plainly, at once."),
    "on": ("autospec.cli.on", "Let a model speculate again."),
    "pin": ("autospec.cli.pin", "Fix values of a model in the configuration file."),
    "reload": ("autospec.cli.reload", "Let the running daemon read its configuration again."),
    "schema": ("autospec.cli.schema", "Print the JSON schema of autospec.toml."),
    "serve": ("autospec.cli.serve", "Run llama-server, tuned and watched."),
    "service": ("autospec.cli.service", "Let systemd run autospec, or no longer."),
    "status": ("autospec.cli.status", "Show what the running daemon does, and why."),
    "unpin": ("autospec.cli.unpin", "Let autospec choose again what was pinned."),
}


class LazyGroup(click.Group):
    """Imports a command's module only when that command runs, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 configuration or usage, 3 engine, 4 model, "
    "5 calibration, 6 no daemon, 7 serving failed, 130 interrupted.",
)
@click.version_option(__version__, prog_name=NAME)
def cli() -> None:
    """Run llama-server at the fastest speculation setting for what is happening now."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return its exit code."""
    try:
        result = cli.main(args=argv, prog_name=NAME, complete_var=COMPLETION, standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except AutospecError as error:
        _tell(error)
        return error.exit_code
    return result if isinstance(result, int) else 0


def _tell(error: AutospecError) -> None:
    import logging

    from autospec.ui.logs import natural_form, told

    text = f"error: {error}" + (f"\n  try: {error.hint}" if error.hint else "")
    click.echo(told(text, logging.ERROR, natural_form()), err=True)

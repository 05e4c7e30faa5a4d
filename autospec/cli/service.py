"""`autospec service`: as a service of systemd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autospec.daemon.service import Scope, Step

_DOING = ("write", "remove", "run")

_user = click.option("--user", is_flag=True, help="For you alone, not for the whole machine.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")


@click.group()
def command() -> None:
    """Let systemd run autospec, or no longer."""


@command.command()
@_user
@_dry_run
@_as_json
def install(user: bool, dry_run: bool, as_json: bool) -> None:
    """Put the units in place, and start the service now and at boot.

    Each step is shown. A unit that you edited is left as it is. What GPUs need is opened only
    where a GPU is seen.
    """
    from autospec.daemon import service
    from autospec.hardware.snapshot import snapshot

    scope = service.Scope.of(user=user)
    start = service.start_command()
    if not user:
        service.refuse_unreachable(start)
    steps = service.install_plan(scope, start, gpu=bool(snapshot().gpus))
    _carry_out(scope, steps, dry_run=dry_run, as_json=as_json)


@command.command()
@_user
@_dry_run
@_as_json
@click.option("--purge", is_flag=True, help="Also remove what it measured and learned.")
def uninstall(user: bool, dry_run: bool, as_json: bool, purge: bool) -> None:
    """Stop the service and take its units away. The configuration stays."""
    from autospec.daemon import service

    scope = service.Scope.of(user=user)
    steps = service.uninstall_plan(scope, purge=purge)
    _carry_out(scope, steps, dry_run=dry_run, as_json=as_json)


def _carry_out(scope: Scope, steps: Sequence[Step], *, dry_run: bool, as_json: bool) -> None:
    from autospec.daemon import service

    if not dry_run:
        service.refuse_without_systemd()
        service.refuse_without_rights(scope)
    done = []
    for step in steps if dry_run else service.carry_out(steps):
        done.append(step)
        if not as_json:
            click.echo(f"{'would ' if dry_run and step.kind in _DOING else ''}{step.says}")
            if step.argv:
                click.echo(f"    {' '.join(step.argv)}")
    if as_json:
        click.echo(json.dumps([step.as_json() for step in done], indent=2))

"""What a shell is offered where a model is named."""

from __future__ import annotations

from pathlib import Path

import click


def models(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names from the configuration that the command would read."""
    from autospec.config.names import model_names

    file = ctx.params.get("config")
    names = model_names(Path(file) if file else None)
    return [name for name in names if name.startswith(incomplete)]


def pins(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from autospec.config.names import PINS

    return [name for name in PINS if name.startswith(incomplete)]


def assignments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [f"{name}=" for name in pins(ctx, param, incomplete)]

"""Arithmetic in one thread.

The matrices here are small: threads of the linear algebra library only wait for each other, and
take cores from llama-server, whose own threads wait for each other too.
"""

from __future__ import annotations

import os

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def calm_arithmetic() -> None:
    """Load numpy with one thread, unless the user says otherwise.

    Only what is not loaded yet is calmed. The environment is as before afterwards: children, which
    may use such a library as well, are not concerned.
    """
    ours = [name for name in _VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    try:
        import numpy  # noqa: F401, PLC0415 - while the variables are set
    finally:
        for name in ours:
            del os.environ[name]

"""The command ``python -m feedwater.serve``: serves a dataset or an op from a shell."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, Optional

from . import errors
from .served import Served, serve_op, serve_source


def _imported(text: str) -> Any:
    module, _, path = text.partition(":")
    if not module or not path:
        raise errors.InvalidArgument(f"{text!r} is not MODULE:OBJECT, such as 'my_code:dataset'")
    try:
        sys.path.insert(0, os.getcwd())
    except FileNotFoundError:
        raise errors.InvalidArgument(
            "the working directory, in which modules are looked for, was removed: cd elsewhere"
        ) from None
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise errors.InvalidArgument(f"cannot import {module!r}: {error}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise errors.InvalidArgument(f"{module!r} has no {path!r}") from None
    return found


def _dataset(own: Any, text: str) -> Any:
    """Return the dataset that an object is, or makes."""
    if not isinstance(own, type) and (hasattr(own, "__getitem__") or hasattr(own, "__iter__")):
        return own
    if not callable(own):
        raise errors.InvalidArgument(
            f"{text} is of type {type(own).__qualname__}: a source is a dataset, or a class or "
            "function without arguments that makes one"
        )
    try:
        inspect.signature(own).bind()
    except TypeError as error:
        raise errors.InvalidArgument(
            f"{text} cannot make a dataset without arguments: {error}. Cure: write an object, or a "
            "function without arguments, into the module; or --as op"
        ) from None
    except ValueError:  # no signature is known
        pass
    return own()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m feedwater.serve",
        description="Serves a dataset or an op of your own to a feedwaterd, until it is ended.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""\
A source is an object with __len__ and __getitem__, or with __iter__, or a class or function without
arguments that makes one. A pipeline reads it with
    dataset: {format: python, name: NAME}
An op is a function of arrays: def flip(image, rng=None): return image[:, ::-1]. A graph has it as
    - python: {name: NAME, in: image, out: image, dtype: uint8, shape: [224, 224, 3]}
with 'random: true' for an rng that depends on seed, epoch and record alone, and with 'batch: true'
in the graph of 'batch:'. Both serve pipelines of the same user only.

    python -m feedwater.serve my_code:PhotoDataset --as source --name photos --workers 8
    python -m feedwater.serve my_code:flip --as op --name my_flip

Exit status: 0 it was ended with SIGTERM or SIGINT, 1 it cannot serve, 2 wrong usage.""",
    )
    parser.add_argument("object", metavar="MODULE:OBJECT", help="what is imported and served")
    parser.add_argument("--as", dest="kind", choices=("source", "op"), required=True)
    parser.add_argument("--name", required=True, help="the name that pipelines give")
    parser.add_argument("--workers", type=int, default=4, help="processes (%(default)s)")
    parser.add_argument("--version", default="", help="of what it gives; it is part of the digest")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds for a record, or for a call, of which 600 at most (%(default)g)",
    )
    parser.add_argument(
        "--length",
        type=int,
        help="samples of an epoch of an iterable dataset; default: its __len__",
    )
    parser.add_argument("--address", help="the daemon's runtime_dir; default: as a loader's")
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    over = threading.Event()
    served: Optional[Served] = None

    def end(*unused: object) -> None:
        over.set()
        if served is None:  # an import or a start, either of which may take minutes
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    common: dict[str, Any] = {
        "workers": options.workers,
        "version": options.version,
        "timeout": options.timeout,
        "address": options.address,
        "daemon": "shared",  # nobody else would find one that is started
    }
    try:
        own = _imported(options.object)
        if options.kind == "op":
            served = serve_op(options.name, own, **common)
        else:
            served = serve_source(
                options.name, _dataset(own, options.object), length=options.length, **common
            )
        with served:
            print(f"serving {served!r}", file=sys.stderr, flush=True)
            while not over.wait(0.5):
                served.check()
    except errors.Error as error:
        print(f"feedwater: {error}", file=sys.stderr)
        return 2 if isinstance(error, errors.InvalidArgument) else 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs benchmarks by name; see scripts/bench and README.md here."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from suite import (
    README,
    RESULTS,
    ROOT,
    Context,
    Figure,
    has_goals,
    machine,
    peers_table,
    show,
    table,
    write_between,
)

# The modules of suite/ that measure: those with a run(context).
NAMES = tuple(
    path.stem
    for path in sorted((Path(__file__).parent / "suite").glob("*.py"))
    if path.stem != "__init__" and "\ndef run(" in path.read_text()
)
SAVED = ROOT / "build" / "bench"


def summary(name: str) -> str:
    """Return the first line of a benchmark's description."""
    return importlib.import_module(f"suite.{name}").__doc__.splitlines()[0]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}, or all")
    parser.add_argument("--data", type=Path, help="image folder; default: real photos, else made")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it runs")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--table", action="store_true", help="write saved results into RESULTS.md")
    parser.add_argument(
        "--install", action="store_true", help="make the environments of the other libraries"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="device, formats, own: a Python that has other loaders; may be repeated",
    )
    options = parser.parse_args()
    names = NAMES if options.names == ["all"] else options.names
    unknown = set(names) - set(NAMES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    if options.list or not (names or options.table):
        for name in NAMES:
            print(f"{name:10} {summary(name)}")
        return 0
    try:
        context = Context(options.data, options.quick, options.python)
    except FileNotFoundError as error:
        parser.error(str(error))
    for name in names if options.install else ():
        install = getattr(importlib.import_module(f"suite.{name}"), "install", None)
        if install is not None:
            install()
    for name in names:
        print(f"== {name}: {summary(name)}", flush=True)
        context.absent.clear()
        figures: list[Figure] = importlib.import_module(f"suite.{name}").run(context)
        show(figures)
        for what, why in context.absent.items():
            print(f"{what}: {why}")
        SAVED.mkdir(parents=True, exist_ok=True)
        document = {
            "name": name,
            "machine": machine(),
            "data": context.data_name,
            "absent": dict(context.absent),
            "figures": [figure.__dict__ for figure in figures],
        }
        (SAVED / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    if options.table:
        write_tables()
    return 0


def write_tables() -> None:
    """Write what is saved into RESULTS.md, and the peers in short into the README."""
    for path in (SAVED / f"{name}.json" for name in NAMES):
        if not path.exists() or not has_goals(document := json.loads(path.read_text())):
            continue
        write_between(RESULTS, document["name"], table(document))
        if document["name"] == "peers":
            write_between(README, "peers", peers_table(document))


if __name__ == "__main__":
    sys.exit(main())

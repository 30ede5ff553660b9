"""Runs one loader of this folder: writes the data that it reads, or measures it.

    python driver.py NAME[:OPTION] write PHOTOS FOLDER
    python driver.py NAME[:OPTION] read FOLDER WORKERS CPUS

NAME is a module here, with `epochs(folder, workers)`, which returns a function that runs one epoch
and gives the size of each batch, and, where it does not read the photos themselves, with
`write(photos, folder)`. OPTION is a third argument of either.
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))


def main() -> None:
    named, what, *rest = sys.argv[1:]
    name, *option = named.split(":")
    if what == "write":
        photos, folder = map(Path, rest)
        importlib.import_module(name).write(photos, folder, *option)
        return
    from common import arguments, measure

    sys.argv[1:] = rest
    folder, workers = arguments()  # pins this process before a library counts CPUs
    measure(importlib.import_module(name).epochs(folder, workers, *option))


if __name__ == "__main__":
    main()

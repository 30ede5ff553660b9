"""The commands `feedwater` and `feedwaterd` of the wheel: each becomes the program of that name.

A module of its own, not one of the package: importing `feedwater` loads NumPy and gRPC, which
takes longer than most commands.
"""

import os
import signal
import sys


def _become(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "feedwater", "bin", name)
    # Python ignores these two, and a program that it becomes would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    # `feedwater migrate` runs a module of the package, which this interpreter has.
    os.environ.setdefault("PYTHON", sys.executable)
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(
            f"{name}: cannot run {path}: {error.strerror}; "
            "it came with the wheel: pip install --force-reinstall --no-deps feedwater"
        )


def feedwater():
    """Run the command line."""
    _become("feedwater")


def feedwaterd():
    """Run the daemon."""
    _become("feedwaterd")

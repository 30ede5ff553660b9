"""Where the daemon is: the runtime directory that holds ``control.sock`` and ``data.sock``."""

from __future__ import annotations

import ctypes
import os
from typing import Optional

from .errors import DaemonLost

DATA_SOCKET = "data.sock"
CONTROL_SOCKET = "control.sock"


def _cpu_list(text: str) -> set[int]:
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def numa_node(sysfs: str = "/sys/devices/system/node") -> int:
    """Return the NUMA node of this process: where it may run, or where it runs now if that is
    several.
    """
    try:
        nodes = {}
        for name in os.listdir(sysfs):
            if name.startswith("node") and name[4:].isdigit():
                with open(os.path.join(sysfs, name, "cpulist")) as file:
                    nodes[int(name[4:])] = _cpu_list(file.read())
        allowed = os.sched_getaffinity(0)
        mine = [node for node, cpus in nodes.items() if cpus & allowed]
        if len(mine) == 1:
            return mine[0]
        cpu = ctypes.CDLL(None).sched_getcpu()
        return next((node for node in mine if cpu in nodes[node]), 0)
    except (OSError, ValueError, AttributeError):
        return 0


def candidates(node: int) -> list[str]:
    """Return the directories where a daemon may be found without being told, best first."""
    bases = []
    if os.environ.get("XDG_RUNTIME_DIR"):
        bases.append(os.path.join(os.environ["XDG_RUNTIME_DIR"], "feedwater"))
    bases += ["/run/feedwater", f"/tmp/feedwater-{os.getuid()}"]
    nodes = [node] if node == 0 else [node, 0]
    return [os.path.join(base, str(n)) for n in nodes for base in bases]


def _is_trusted(directory: str) -> bool:
    """Tell whether only this user or root can have put a daemon there: all may write to /tmp."""
    if not directory.startswith("/tmp/"):
        return True
    try:
        owners = {os.lstat(path).st_uid for path in (os.path.dirname(directory), directory)}
    except OSError:
        return False
    return owners <= {0, os.getuid()}


def resolve(address: Optional[str] = None) -> str:
    """Return the daemon's runtime directory.

    Parameters
    ----------
    address : str, optional
        Default: ``$FEEDWATER_ADDRESS``, else the instance of this process's NUMA node, else node
        0's.

    Raises
    ------
    DaemonLost
        No address was given and no daemon is where one would be.
    """
    if address:
        return os.fspath(address)
    if os.environ.get("FEEDWATER_ADDRESS"):
        return os.environ["FEEDWATER_ADDRESS"]
    tried = candidates(numa_node())
    for directory in tried:
        if os.path.exists(os.path.join(directory, DATA_SOCKET)) and _is_trusted(directory):
            return directory
    raise DaemonLost(
        f"no daemon found: no {DATA_SOCKET} in {', '.join(tried)}. Start one with "
        "'feedwaterd --config feedwater.yaml', or say where it is (its runtime_dir) with "
        "address=... or $FEEDWATER_ADDRESS"
    )

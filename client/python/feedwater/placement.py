"""Which rank this process is: the worst failure of a loader is two ranks that read the same samples
without a word.

The first of these that says anything decides:

1. the arguments ``rank`` and ``world_size`` of the loader, both of them;
2. a process group that is initialised: ``torch.distributed``, ``jax.distributed``, Horovod or MPI
   through ``mpi4py``. They are looked for among the modules that the program has imported, never
   imported here;
3. the environment of a launcher: torchrun, Horovod, Open MPI, MVAPICH, PMI (MPICH, Intel MPI) or
   Slurm's srun;
4. nobody: rank 0 of 1.

Half of what a launcher says (``WORLD_SIZE`` of 2 and no ``RANK``; TensorFlow's ``TF_CONFIG`` of
several workers), and two sources that contradict one another, are refused rather than guessed. The
C++ client has the same rules and job names, as far as the environment goes (client/cpp/launcher.h),
so that ranks in both languages meet in one job.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from .errors import FailedPrecondition, InvalidArgument
from .launchers import (
    HOROVOD,
    LAUNCHERS,
    TORCHRUN,
    Said,
    refuse_halves,
    refuse_tensorflow,
    rendezvous,
    said_by_launchers,
)

_HOROVOD_MODULES = ("torch", "tensorflow", "keras", "tensorflow.keras", "mxnet")
_NO_DATA_LOADER = "iterate over the feedwater.Loader itself, without a DataLoader"


@dataclass(frozen=True)
class RankPlacement:
    """A process among those of its job."""

    rank: int
    world_size: int
    local_rank: int
    source: Optional[str]  # who said so; None: the arguments, or nobody
    job: Optional[str]  # what all ranks of this launch have in common; None where nothing is known
    launch: Optional[RankPlacement] = None  # what a launcher says, where the arguments differ


def placement(
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
) -> RankPlacement:
    """Find rank, world size and local rank.

    Parameters
    ----------
    rank, world_size : int, optional
        What the program says; it wins over everything else.
    env : mapping, optional
        Default: the process's environment.

    Raises
    ------
    InvalidArgument
        Only one of rank and world size is given, a launcher's environment has only half of what is
        needed, or a variable is no number.
    FailedPrecondition
        Two sources contradict one another, or workers of a DataLoader would read the same.
    """
    env = os.environ if env is None else env
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise InvalidArgument(f"{given} is given but {missing} is not: give both, or neither")
    if rank is not None and world_size is not None:
        return _of_arguments(rank, world_size, env)
    workers = _data_loader_workers()
    if workers > 1:
        raise FailedPrecondition(
            f"this is one of {workers} workers of a torch DataLoader, and each would read the same "
            f"samples: {_NO_DATA_LOADER}"
        )
    launched, halves = said_by_launchers(env)
    group = process_group()
    if group is not None and launched is not None:
        if group.source == launched.source == HOROVOD and not _agree(group, launched):
            launched = None  # of before an elastic reset: os.environ does not see what C++ sets
        else:
            _check_group(group, launched)
    if group is None and launched is None:
        refuse_halves(halves)
        refuse_tensorflow(env)
        if workers > 0:  # a group of its parent's is not known in a process that was spawned
            raise FailedPrecondition(
                "this is a worker of a torch DataLoader, which does not know the rank of the "
                f"process that it works for: {_NO_DATA_LOADER}, or give both rank and world_size"
            )
        return RankPlacement(0, 1, 0, None, _siblings())
    return _place(group, launched, env)


def is_apart(is_given: bool, place: RankPlacement) -> bool:
    """Tell whether a place is one that the program gave and that no launch knows: other ranks need
    not make the same loader, so it must not count among those that they all make.
    """
    return is_given and place.source is None


def local_ranks(place: RankPlacement, env: Optional[Mapping[str, str]] = None) -> int:
    """Return how many ranks of the job this host has: as the launcher says, else all of them (a
    group that no launcher made is on one host as a rule), and never more than there are.
    """
    env = os.environ if env is None else env
    place = place.launch or place
    for launcher in LAUNCHERS:
        if any(env.get(name, "").strip() for name in launcher.rank):
            for name in launcher.local_size:
                counts = re.match(r"\d+", env.get(name, "").strip())  # Slurm: "4(x2),3"
                if counts is not None:
                    return max(1, min(int(counts.group()), place.world_size))
    return place.world_size


def _place(
    group: Optional[Said], launched: Optional[Said], env: Mapping[str, str]
) -> RankPlacement:
    """Settle who decides, and the job's name."""
    said = group or launched
    assert said is not None and said.rank is not None and said.world_size is not None
    local = said.local_rank
    if launched is not None and launched.world_size == said.world_size:
        local, job = launched.local_rank if local is None else local, launched.job
    else:
        text = env.get(TORCHRUN.local_rank[0], "")  # Lightning sets it, and no RANK
        if local is None and launched is None and text.isdigit():
            local = int(text)
        job = said.job or rendezvous(env) or (launched.job if launched else None)
        job = job or _of_parent("group")
    return RankPlacement(
        said.rank, said.world_size, said.rank if local is None else local, said.source, job
    )


def _of_arguments(rank: int, world_size: int, env: Mapping[str, str]) -> RankPlacement:
    launched = group = None
    try:
        group = process_group()
        launched, _ = said_by_launchers(env)
    except (InvalidArgument, FailedPrecondition):
        pass  # it must not stand in the way of somebody who says everything
    # Of workers of a DataLoader that say the same rank the daemon refuses the second one.
    job = _of_parent("children") if _data_loader_workers() > 1 else None
    if group is None and launched is None:
        return RankPlacement(rank, world_size, rank, None, job)
    found = _place(group, launched, env)
    if (found.rank, found.world_size) == (rank, world_size):
        return found
    # The program divides its processes in its own way (every rank validates alone, or data-parallel
    # groups). Which of them belong together is not known here: each gets a job of its own.
    return RankPlacement(rank, world_size, found.local_rank, None, job, found)


# --- process groups -------------------------------------------------------------------------------


def process_group() -> Optional[Said]:
    """Return what an initialised process group says, of the modules that are imported already.

    Raises
    ------
    FailedPrecondition
        Two groups contradict one another.
    """
    found: Optional[Said] = None
    for group in (_torch_group(), _jax_group(), _horovod_group(), _mpi_group()):
        if group is None:
            continue
        if found is None:
            found = group
        elif not _agree(group, found):
            raise FailedPrecondition(f"{found}, and {group}: give both rank and world_size")
    return found


def _torch_group() -> Optional[Said]:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return Said(
        "torch.distributed",
        int(dist.get_rank()),
        int(dist.get_world_size()),
        None,
        "its default process group",
    )


def _jax_group() -> Optional[Said]:
    # The state that jax.distributed.initialize() leaves. Asking jax.process_index() instead would
    # start the devices, before the program has said which.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or getattr(state, "client", None) is None:
        return None
    address = getattr(state, "coordinator_address", None)
    return Said(
        "jax.distributed",
        int(state.process_id),
        int(state.num_processes),
        None,
        "jax.distributed.initialize",
        f"jax-{address}" if address else None,
    )


def _horovod_group() -> Optional[Said]:
    for name in _HOROVOD_MODULES:
        hvd: Any = sys.modules.get(f"horovod.{name}")
        is_initialized = getattr(hvd, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            rank, world_size, local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
            return Said(
                HOROVOD, int(rank), int(world_size), int(local_rank), f"horovod.{name}.init"
            )
    return None


def _mpi_group() -> Optional[Said]:
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return None
    world = mpi.COMM_WORLD
    size = int(world.Get_size())
    if size == 1:
        return None  # a program that only imports mpi4py is a world of its own: it says nothing
    return Said("mpi4py", int(world.Get_rank()), size, None, "MPI.COMM_WORLD")


def _agree(one: Said, other: Said) -> bool:
    return (one.rank, one.world_size) == (other.rank, other.world_size)


def _check_group(group: Said, launched: Said) -> None:
    """Refuse what contradicts. A group may be larger than what the launcher started, whose
    processes start others then (``mp.spawn`` in each task of srun); never smaller, nor as large and
    in another order.
    """
    assert group.world_size is not None and launched.world_size is not None
    larger = group.world_size > launched.world_size
    if larger or _agree(group, launched):
        return
    raise FailedPrecondition(
        f"{group}, but {launched}: some processes are outside of the group, so their ranks are not "
        "known; put all of them into one group, or give both rank and world_size"
    )


# --- job names ------------------------------------------------------------------------------------


def _siblings() -> Optional[str]:
    """Name the job of a process that multiprocessing started and that nobody gave a rank.

    Its siblings get the same name. If they are ranks that nobody told of one another (``mp.spawn``
    without a process group, workers of a DataLoader), the daemon refuses the second one.
    """
    return None if multiprocessing.parent_process() is None else _of_parent("children")


def _of_parent(kind: str) -> str:
    parent = os.getppid()
    return f"{kind}-of-pid-{parent}.{_began(parent)}"


def process_key() -> str:
    """Name this process as no other one on the host, before or after it, as the C++ client does."""
    pid = os.getpid()
    try:  # the same number means other processes in other containers
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"pid-{pid}.{_began(pid)}.{space}"


def _began(pid: int) -> str:
    """Return when a process began: numbers of processes come again."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def _data_loader_workers() -> int:
    """Return how many workers the torch DataLoader has of which this process is one; 0: none."""
    data: Any = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    return 0 if worker is None else int(worker.num_workers)

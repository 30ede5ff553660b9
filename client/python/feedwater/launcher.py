"""Which rank this process is, as its launcher says: torchrun, Slurm, Open MPI or another MPI's
process manager.

The environment is read once, when a loader is made. Arguments of the loader win.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from .errors import InvalidArgument

# (launcher, rank, world size, local rank); the first whose rank and world size are both set is
# taken.
_LAUNCHERS = (
    ("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",)),
    (
        "Open MPI",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
    ),
    ("Slurm", ("SLURM_PROCID",), ("SLURM_NTASKS", "SLURM_NPROCS"), ("SLURM_LOCALID",)),
    ("PMI", ("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK")),
)


@dataclass(frozen=True)
class Placement:
    """A process among those of its job."""

    rank: int
    world_size: int
    local_rank: int
    launcher: Optional[str]  # None: rank and world size are not a launcher's
    job: Optional[str]  # what all ranks of this launch have in common; None without a launcher's


def _number(env: Mapping[str, str], names: tuple[str, ...]) -> Optional[int]:
    for name in names:
        text = env.get(name, "").strip()
        if text:
            try:
                return int(text)
            except ValueError:
                raise InvalidArgument(
                    f"the environment variable {name} is {text!r}, not a number"
                ) from None
    return None


def _rendezvous(env: Mapping[str, str]) -> Optional[str]:
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return None


def _job(launcher: str, env: Mapping[str, str]) -> Optional[str]:
    """Name what the ranks of a launch have in common, as the C++ client does too."""
    if launcher == "torchrun":
        run = env.get("TORCHELASTIC_RUN_ID")
        if not run:
            return _rendezvous(env) or _slurm_job(env)
        if run == "none":  # torchrun's default: the same for all runs of a machine
            run = f"torchrun-{_rendezvous(env) or 'none'}"
        # A restarted group must not meet the ranks of the one before it.
        restarts = env.get("TORCHELASTIC_RESTART_COUNT", "0")
        return run if restarts == "0" else f"{run}.{restarts}"
    if launcher == "Slurm":
        return _slurm_job(env)
    for name in ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID"):
        if env.get(name):
            return f"mpi-{env[name]}"
    return _slurm_job(env) or _rendezvous(env)


def _slurm_job(env: Mapping[str, str]) -> Optional[str]:
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")
    if not job:
        return None
    step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")
    return f"slurm-{job}" if step is None else f"slurm-{job}.{step}"


def placement(
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Placement:
    """Find rank, world size and local rank.

    Parameters
    ----------
    rank, world_size : int, optional
        What the program says; it wins over the environment.
    env : mapping, optional
        Default: the process's environment.

    Raises
    ------
    InvalidArgument
        Only one of rank and world size is known, or a variable is no number.
    """
    env = os.environ if env is None else env
    found = None
    for name, rank_names, world_names, local_names in _LAUNCHERS:
        if rank is not None and world_size is not None:
            # A broken variable must not stand in the way of somebody who says everything.
            try:
                numbers = (
                    _number(env, rank_names),
                    _number(env, world_names),
                    _number(env, local_names),
                )
            except InvalidArgument:
                continue
        else:
            numbers = _number(env, rank_names), _number(env, world_names), _number(env, local_names)
        if numbers[0] is not None and numbers[1] is not None:
            found = (name, *numbers)
            break
    if found is None:
        if (rank is None) != (world_size is None):
            given, missing = (
                ("rank", "world_size") if world_size is None else ("world_size", "rank")
            )
            raise InvalidArgument(
                f"{given} is given but {missing} is not, and no launcher's environment has it: "
                "give both"
            )
        if rank is None or world_size is None:
            return Placement(0, 1, 0, None, None)
        return Placement(rank, world_size, rank, None, None)
    launcher, env_rank, env_world, env_local = found
    assert env_rank is not None and env_world is not None
    local = env_rank if env_local is None else env_local
    my_rank = env_rank if rank is None else rank
    my_world = env_world if world_size is None else world_size
    if (my_rank, my_world) != (env_rank, env_world):
        # The program divides its processes in its own way (every rank validates alone, or
        # data-parallel groups). Which of them belong together is not known here: each gets a job of
        # its own.
        return Placement(my_rank, my_world, local, None, None)
    return Placement(my_rank, my_world, local, launcher, _job(launcher, env))

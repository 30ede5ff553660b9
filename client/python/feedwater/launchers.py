"""What launchers say in the environment of the processes that they start: rank, world size, local
rank, and what all ranks of a launch have in common.

Half of what a launcher says, and launchers that contradict one another, are refused here. Which of
launcher, process group and arguments decides is `placement`'s to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from .errors import FailedPrecondition, InvalidArgument

HOROVOD = "Horovod"
_CURE = (
    "start every rank through the launcher, make the loader after the process group is "
    "initialised, or give both rank and world_size"
)
# SLURM_STEP_ID of what is not a step of srun's: the shell of `salloc`, the script of `sbatch`, the
# container of a job.
_NO_STEPS = ("4294967290", "4294967291", "4294967292")
_PTY = "SLURM_PTY_PORT"  # of tasks of `srun --pty`, of which the first one has the terminal


@dataclass(frozen=True)
class Launcher:
    """The names of a launcher's variables. Of several the first that is set counts."""

    name: str
    rank: tuple[str, ...]
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]  # ranks on this host


TORCHRUN = Launcher("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",))
_SLURM = Launcher(
    "Slurm",
    ("SLURM_PROCID",),
    ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
    ("SLURM_LOCALID",),
    ("SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
)
# The innermost first: torchrun is started by srun or mpirun, mpirun in a job of Slurm's.
LAUNCHERS = (
    TORCHRUN,
    Launcher(
        HOROVOD,
        ("HOROVOD_RANK",),
        ("HOROVOD_SIZE",),
        ("HOROVOD_LOCAL_RANK",),
        ("HOROVOD_LOCAL_SIZE",),
    ),
    Launcher(
        "Open MPI",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    Launcher(
        "MVAPICH",
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    Launcher(
        "PMI",
        ("PMI_RANK",),
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    ),
    _SLURM,
)


@dataclass(frozen=True)
class Said:
    """What a source says; None: nothing."""

    source: str
    rank: Optional[int]
    world_size: Optional[int]
    local_rank: Optional[int]
    names: str  # of the variables, for messages
    job: Optional[str] = None
    missing: str = ""  # the variable that is not there
    may_be_shell: bool = False  # one process, started by hand in the shell of a first task

    def __str__(self) -> str:
        return f"{self.source} says rank {self.rank} of {self.world_size} ({self.names})"


def said_by_launchers(env: Mapping[str, str]) -> tuple[Optional[Said], list[Said]]:
    """Return what the innermost launcher says that says everything, and what stands there of others
    within it.
    """
    halves: list[Said] = []
    complete: list[Said] = []
    for launcher in LAUNCHERS:
        said = _read(launcher, env)
        if said is not None and not said.missing and not said.may_be_shell:
            complete.append(said)
        elif said is not None and not complete:
            halves.append(said)
    if not complete:
        return None, halves
    found = complete[0]
    for half in halves:
        numbers = (half.rank, found.rank), (half.world_size, found.world_size)
        if any(says is not None and says != known for says, known in numbers):
            raise FailedPrecondition(
                f"{found}, but {half.names} contradicts it: unset what is not the launcher's, or "
                "give both rank and world_size"
            )
    if found.source == TORCHRUN.name or found.world_size == 1:
        # Each process of an outer launcher starts one or more of torchrun's. A world of one inside
        # a larger one is most often a leftover: each of them would read everything.
        for outer in complete[1:]:
            assert found.world_size is not None and outer.world_size is not None
            if found.world_size < outer.world_size:
                raise FailedPrecondition(
                    f"{found}, but {outer}: unset what is left of another launch, or, where these "
                    "are trainings of their own, give both rank and world_size"
                )
    return found, halves


def refuse_halves(halves: list[Said]) -> None:
    """Refuse what a launcher says when no one says everything."""
    for half in halves:
        if half.rank is None and half.world_size == 1:
            continue
        if half.may_be_shell:
            raise InvalidArgument(
                f"{half}, and {_PTY} is set and there is a terminal: in the shell of `srun --pty` "
                f"with {half.world_size} tasks this is one process, which would read the share of "
                "one. Start the shell with `srun --ntasks=1 --pty`, or every rank through srun, or "
                "give both rank and world_size. Where srun runs a script that starts the program, "
                "`exec` it there, or leave out `--pty`"
            )
        raise InvalidArgument(
            f"half of {half.source}'s environment is there: {half.names}, and no {half.missing}; "
            f"{_CURE}. (Lightning's own launcher sets no rank: make the loader in "
            "train_dataloader(), where its process group is there, or start through torchrun)"
        )


def refuse_tensorflow(env: Mapping[str, str]) -> None:
    """Refuse one of several workers of TensorFlow's: their ranks are the program's to say."""
    try:
        cluster = json.loads(env.get("TF_CONFIG", ""))["cluster"]
        workers = sum(len(cluster.get(task, ())) for task in ("chief", "master", "worker"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    if workers > 1:
        raise InvalidArgument(
            f"TF_CONFIG names {workers} workers, and nothing says which rank this process is: "
            "give both rank and world_size"
        )


def _read(launcher: Launcher, env: Mapping[str, str]) -> Optional[Said]:
    missing = _missing_of_step(env) if launcher is _SLURM else ""
    if missing is None:
        return None
    rank, world_size, local_rank = (
        _number(env, names) for names in (launcher.rank, launcher.world_size, launcher.local_rank)
    )
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        missing = (launcher.rank if rank is None else launcher.world_size)[0]
    set_names = (
        next((name for name in names if env.get(name, "").strip()), None)
        for names in (launcher.rank, launcher.world_size)
    )
    shown = ", ".join(f"{name}={env[name]}" for name in set_names if name is not None)
    is_of_pty = bool(launcher is _SLURM and not missing and env.get(_PTY)) and world_size != 1
    is_task = env.get("SLURM_TASK_PID") == str(os.getpid())  # srun started the program itself
    may_be_shell = is_of_pty and not is_task and _has_terminal()
    job = _job(launcher, env)
    return Said(launcher.name, rank, world_size, local_rank, shown, job, missing, may_be_shell)


def _has_terminal() -> bool:
    """Tell whether this process has a controlling terminal, which tasks of srun without --pty have
    not, though they inherit the variables of the shell that they were started from.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _missing_of_step(env: Mapping[str, str]) -> Optional[str]:
    """Tell whether Slurm's variables are those of a task that srun started: nothing is missing
    (""), they are not (None), or the name of the variable that would tell.

    The script of sbatch, and with `use_interactive_step` the shell of salloc, is one process with
    the variables of a first task, and SLURM_NTASKS is what srun would start.
    """
    step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")
    if step in _NO_STEPS:
        return None
    if step or env.get("SLURM_STEP_NUM_TASKS"):
        return ""
    return None if env.get("SLURM_PROCID") == "0" else "SLURM_STEP_ID"


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


def _job(launcher: Launcher, env: Mapping[str, str]) -> Optional[str]:
    """Name what the ranks of a launch have in common, as the C++ client does too."""
    if launcher is TORCHRUN:
        run = env.get("TORCHELASTIC_RUN_ID")
        if not run:
            return rendezvous(env) or _slurm_job(env)
        if run == "none":  # torchrun's default: the same for all runs of a machine
            run = f"torchrun-{rendezvous(env) or 'none'}"
        # A restarted group must not meet the ranks of the one before it.
        restarts = env.get("TORCHELASTIC_RESTART_COUNT", "0")
        return run if restarts == "0" else f"{run}.{restarts}"
    if launcher is _SLURM:
        return _slurm_job(env)
    for name in ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID"):
        if env.get(name):
            return f"mpi-{env[name]}"
    return _slurm_job(env) or rendezvous(env)


def rendezvous(env: Mapping[str, str]) -> Optional[str]:
    """Return where the ranks of a process group meet, by the environment."""
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return None


def _slurm_job(env: Mapping[str, str]) -> Optional[str]:
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")
    if not job:
        return None
    step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")
    return f"slurm-{job}" if step is None else f"slurm-{job}.{step}"

"""Rank, world size and job from every launcher's environment: a table that both clients obey.

Method: a driver with those variables and no others opens a loader of a made-up daemon. What must
never happen is that two ranks of one launch both read everything as rank 0 of 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from driver import Refused

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
AT = {"MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77"}
STEP = {**SLURM, "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "4"}
PTY = {"SLURM_PTY_PORT": "41235"}  # of `srun --pty`
# The script of sbatch itself: one process, with the variables of a first task.
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "77"}
# A shell of salloc: on the login node, or on the first node with use_interactive_step.
SALLOC = {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "77"}
INTERACTIVE = {**BATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
HOROVOD = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_RANK": "0"}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2"}
CLUSTER = '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "task": {}}'
TENSORFLOW = {"TF_CONFIG": CLUSTER}
# Runs a command with a controlling terminal, which is not its standard input or output.
WITH_TERMINAL = (
    sys.executable,
    "-c",
    "import fcntl, os, pty, sys, termios\n"
    "os.setsid()\n"
    "for end in pty.openpty(): os.set_inheritable(end, True)\n"
    "fcntl.ioctl(end, termios.TIOCSCTTY, 0)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])",
)
OWN = "pid-"  # a job of the process's own


@pytest.mark.parametrize(
    ("environment", "expected", "job"),
    [
        ({}, (0, 1, 0), OWN),
        ({**TORCHRUN, **AT}, (5, 8, 1), "n0:29500/"),
        ({**TORCHRUN, **AT, "TORCHELASTIC_RUN_ID": "none"}, (5, 8, 1), "torchrun-n0:29500/"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "r7"}, (5, 8, 1), "r7/"),
        (
            {**TORCHRUN, "TORCHELASTIC_RUN_ID": "r7", "TORCHELASTIC_RESTART_COUNT": "2"},
            (5, 8, 1),
            "r7.2/",
        ),
        (STEP, (3, 4, 1), "slurm-77.2/"),
        ({**OPEN_MPI, "PMIX_NAMESPACE": "prterun-1"}, (2, 6, 0), "mpi-prterun-1/"),
        (HOROVOD, (1, 2, 0), OWN),
        (MVAPICH, (1, 2, 0), OWN),
        (PMI, (1, 2, 1), OWN),
        # One process of Slurm's, however many tasks srun would start.
        (BATCH, (0, 1, 0), OWN),
        (INTERACTIVE, (0, 1, 0), OWN),
        ({"SLURM_NTASKS": "1", "SLURM_JOB_ID": "77"}, (0, 1, 0), OWN),
        # The innermost launcher's ranks count: of torchrun in tasks of srun, in a batch script, in
        # a shell of salloc; of mpirun in a batch script (on the first node and on another, where
        # srun has started its helper).
        ({**STEP, **TORCHRUN, **AT}, (5, 8, 1), "n0:29500/"),
        ({**BATCH, **TORCHRUN, **AT, "WORLD_SIZE": "6"}, (5, 6, 1), "n0:29500/"),
        ({**SALLOC, "RANK": "1", "WORLD_SIZE": "2", **AT}, (1, 2, 1), "n0:29500/"),
        ({**BATCH, **OPEN_MPI, "PMIX_NAMESPACE": "p"}, (2, 6, 0), "mpi-p/"),
        ({**STEP, **PMI, "PMI_JOBID": "j"}, (1, 2, 1), "mpi-j/"),
        # A shell of `srun --pty`: one task, or what is started in it knows its ranks.
        ({**STEP, **PTY, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1, 1), "slurm-"),
        ({**STEP, **PTY, "SLURM_PROCID": "0", **TORCHRUN, "WORLD_SIZE": "6"}, (5, 6, 1), "slurm-"),
        ({**STEP, "SLURM_PTY_PORT": ""}, (3, 4, 1), "slurm-77.2/"),
        # Half of what another launcher would set, and it fits.
        ({**STEP, "WORLD_SIZE": "4"}, (3, 4, 1), "slurm-77.2/"),
        # TensorFlow's workers are launched by somebody who says their ranks; or there is but one.
        ({**STEP, **TENSORFLOW}, (3, 4, 1), "slurm-77.2/"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}}'}, (0, 1, 0), OWN),
        ({"TF_CONFIG": '{"cluster": [1, 2]}'}, (0, 1, 0), OWN),
        ({"TF_CONFIG": "no JSON"}, (0, 1, 0), OWN),
        # Nothing is said by a world of one, or by variables that are empty.
        ({"WORLD_SIZE": "1"}, (0, 1, 0), OWN),
        ({"RANK": "", "WORLD_SIZE": " "}, (0, 1, 0), OWN),
    ],
)
def test_the_environment_says_who_this_process_is(fake, start, environment, expected, job):
    facts = start(fake, **environment).open("numbers")
    assert (facts["rank"], facts["world_size"]) == expected[:2]
    if "LOCAL_RANK" in str(environment) or "LOCALID" in str(environment):
        assert facts["local_rank"] == expected[2]
    assert fake.requests[-1].job.startswith(job)


def test_a_process_without_a_launcher_has_a_job_that_no_other_one_on_the_host_has(fake, start):
    """Containers have numbers of processes of their own, and share a daemon."""
    driver = start(fake)
    driver.open("numbers")
    pid = driver.process.pid
    began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    space = os.stat(f"/proc/{pid}/ns/pid").st_ino
    assert fake.requests[-1].job == f"pid-{pid}.{began}.{space}/numbers#1"


@pytest.mark.parametrize(
    ("environment", "code", "texts"),
    [
        ({"WORLD_SIZE": "2"}, "INVALID_ARGUMENT", ["half of torchrun's", "WORLD_SIZE=2", "RANK"]),
        ({"RANK": "1"}, "INVALID_ARGUMENT", ["half of torchrun's", "RANK=1", "WORLD_SIZE"]),
        ({"PMI_SIZE": "2"}, "INVALID_ARGUMENT", ["half of PMI's", "PMI_RANK"]),
        (SALLOC, "INVALID_ARGUMENT", ["half of Slurm's", "SLURM_NTASKS=4", "SLURM_PROCID"]),
        (SLURM, "INVALID_ARGUMENT", ["half of Slurm's", "SLURM_PROCID=3", "SLURM_STEP_ID"]),
        ({"RANK": "0", "WORLD_SIZE": "many"}, "INVALID_ARGUMENT", ["WORLD_SIZE is 'many'"]),
        (TENSORFLOW, "INVALID_ARGUMENT", ["TF_CONFIG names 3 workers"]),
        # A leftover that would make every task of srun, or process of mpirun, a world of its own.
        (
            {**STEP, "RANK": "0", "WORLD_SIZE": "1"},
            "FAILED_PRECONDITION",
            ["torchrun says rank 0 of 1", "Slurm says rank 3 of 4"],
        ),
        (
            {**OPEN_MPI, "RANK": "0", "WORLD_SIZE": "1"},
            "FAILED_PRECONDITION",
            ["torchrun says rank 0 of 1", "Open MPI says rank 2 of 6"],
        ),
        (
            {**STEP, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
            "FAILED_PRECONDITION",
            ["Open MPI says rank 0 of 1", "Slurm says rank 3 of 4"],
        ),
        (
            {**STEP, "WORLD_SIZE": "8"},
            "FAILED_PRECONDITION",
            ["Slurm says rank 3 of 4", "WORLD_SIZE=8"],
        ),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_variables_and_the_cure(
    fake, start, environment, code, texts
):
    driver = start(fake, **environment)
    with pytest.raises(Refused) as caught:
        driver.open("numbers")
    assert caught.value.code == code
    for text in [*texts, *(["give both rank and world_size"] if "many" not in str(texts) else [])]:
        assert text in caught.value.message
    assert driver.open("numbers", rank=1, world_size=2)["rank"] == 1  # it says everything


def test_the_shell_of_srun_pty_is_refused_and_what_srun_starts_in_it_is_not(fake, start):
    """It is one process, with the variables of a first task of four."""
    shell = start(fake, prefix=WITH_TERMINAL, **{**STEP, **PTY, "SLURM_PROCID": "0"})
    with pytest.raises(Refused) as caught:
        shell.open("numbers")
    assert caught.value.code == "INVALID_ARGUMENT"
    for text in (
        "Slurm says rank 0 of 4",
        "SLURM_PTY_PORT is set",
        "Start the shell with `srun --ntasks=1 --pty`, or every rank through srun, or give both "
        "rank and world_size. Where srun runs a script that starts the program, `exec` it there, "
        "or leave out `--pty`",
    ):
        assert text in caught.value.message
    assert shell.open("numbers", rank=1, world_size=2)["rank"] == 1
    itself = ("sh", "-c", 'SLURM_TASK_PID=$$ exec "$@"', "sh")  # srun --pty python train.py
    for prefix in (("setsid",), (*WITH_TERMINAL, *itself)):
        facts = start(fake, prefix=prefix, **STEP, **PTY).open("numbers", job=prefix[0])
        assert (facts["rank"], facts["world_size"]) == (3, 4)


@pytest.mark.parametrize(("given", "missing"), [("rank", "world_size"), ("world_size", "rank")])
def test_half_a_pair_of_arguments_is_refused(fake, start, given, missing):
    with pytest.raises(Refused, match=f"{given} is given but {missing} is not"):
        start(fake, **TORCHRUN).open("numbers", **{given: 1})


def test_a_program_with_its_own_ranks_is_not_put_into_the_launchers_job(fake, start):
    driver = start(fake, **TORCHRUN, TORCHELASTIC_RUN_ID="r7")
    for loader in ("a", "b"):
        driver.open("numbers", loader=loader, rank=0, world_size=1)
    driver.open("numbers", loader="c", rank=5, world_size=8)
    driver.open("numbers", loader="d")
    jobs = [request.job for request in fake.requests]
    assert all(job.startswith(OWN) for job in jobs[:2]) and len(set(jobs)) == 4
    # Other ranks need not have loaders of their own, too.
    assert jobs[2:] == ["r7/numbers#1", "r7/numbers#2"]


def test_two_programs_that_each_read_everything_are_told_of_in_the_daemons_log(own_daemon, start):
    first, second, third = start(own_daemon), start(own_daemon), start(own_daemon)
    first.open("crop")
    first.open("plain", loader="validation")  # one process may have several
    third.open("crop", seed=6)
    assert "rank 0 of 1 over the same data" not in own_daemon.tail()
    second.open("crop")
    assert f"(pid {second.process.pid})" in own_daemon.tail()
    assert own_daemon.tail().count("rank 0 of 1 over the same data with seed 5") == 1


def test_a_stream_that_could_not_be_opened_uses_no_number_up(fake, start):
    driver = start(fake, **TORCHRUN, **AT)
    fake.faults.refuse_open = (8, "no memory is left")
    with pytest.raises(Refused, match="no memory is left"):
        driver.open("numbers")
    fake.faults.refuse_open = None
    assert driver.open("numbers")["job"] == "n0:29500/numbers#1"
    assert driver.open("numbers", loader="b")["job"] == "n0:29500/numbers#2"

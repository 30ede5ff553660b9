"""Rank and world size from every launcher, and what job the ranks share."""

import pytest

import feedwater
from feedwater.launcher import Placement, placement

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "2",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "PMIX_NAMESPACE": "prterun-1",
}  # fmt: skip
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Placement(0, 1, 0, None, None)),
        (TORCHRUN, Placement(5, 8, 1, "torchrun", "n0:29500")),
        (
            {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"},
            Placement(5, 8, 1, "torchrun", "torchrun-n0:29500"),
        ),
        (
            {**TORCHRUN, "TORCHELASTIC_RUN_ID": "r7"},
            Placement(5, 8, 1, "torchrun", "r7"),
        ),
        (
            {**TORCHRUN, "TORCHELASTIC_RUN_ID": "r7", "TORCHELASTIC_RESTART_COUNT": "2"},
            Placement(5, 8, 1, "torchrun", "r7.2"),
        ),
        (SLURM, Placement(3, 4, 1, "Slurm", "slurm-77.2")),
        (OPEN_MPI, Placement(2, 6, 0, "Open MPI", "mpi-prterun-1")),
        (PMI, Placement(1, 2, 1, "PMI", None)),
        # torchrun started by srun: the ranks are torchrun's. mpirun in a Slurm job: they are Open
        # MPI's.
        ({**SLURM, **TORCHRUN}, Placement(5, 8, 1, "torchrun", "n0:29500")),
        ({**SLURM, **OPEN_MPI}, Placement(2, 6, 0, "Open MPI", "mpi-prterun-1")),
        # Half of a pair says nothing.
        ({"RANK": "1"}, Placement(0, 1, 0, None, None)),
        ({"RANK": "", "WORLD_SIZE": ""}, Placement(0, 1, 0, None, None)),
    ],
)
def test_the_launcher_is_found_in_the_environment(env, expected):
    assert placement(env=env) == expected


def test_arguments_win_over_the_launcher():
    found = placement(0, 1, TORCHRUN)
    assert (found.rank, found.world_size, found.local_rank) == (0, 1, 1)


def test_a_program_with_its_own_ranks_is_not_put_into_the_launchers_job():
    # Every rank validates alone: with one job name the second would meet ALREADY_EXISTS.
    assert placement(0, 1, TORCHRUN).job is None
    assert placement(5, 8, TORCHRUN).job == "n0:29500"


def test_half_a_pair_of_arguments_without_a_launcher_is_refused():
    with pytest.raises(feedwater.InvalidArgument, match="rank is given but world_size is not"):
        placement(rank=1, env={})
    with pytest.raises(feedwater.InvalidArgument, match="world_size is given but rank is not"):
        placement(world_size=2, env={})


def test_half_a_pair_of_arguments_is_completed_by_the_launcher():
    found = placement(rank=6, env=TORCHRUN)
    assert (found.rank, found.world_size) == (6, 8)


def test_a_variable_that_is_no_number_is_named():
    with pytest.raises(feedwater.InvalidArgument, match="WORLD_SIZE is 'many'"):
        placement(env={"RANK": "0", "WORLD_SIZE": "many"})
    assert placement(1, 2, {"RANK": "0", "WORLD_SIZE": "many"}).rank == 1


def test_ranks_of_a_launch_ask_for_the_same_job_and_loaders_of_a_process_for_different_ones(
    daemon, open_loader, monkeypatch
):
    for rank in ("0", "1"):
        for name, value in {**TORCHRUN, "RANK": rank, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("feedwater.loader._opened", {})  # as in a process of its own
        open_loader(daemon)
        open_loader(daemon)
    jobs = [request.job for request in daemon.requests]
    assert jobs[0] == jobs[2] == "n0:29500/numbers#1"
    assert jobs[1] == jobs[3] == "n0:29500/numbers#2"
    assert [request.rank for request in daemon.requests] == [0, 0, 1, 1]

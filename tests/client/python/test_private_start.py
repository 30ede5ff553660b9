"""What a private daemon is started with, and whose it is: without starting one."""

from __future__ import annotations

import os

import pytest

import feedwater
from feedwater import lifeline, machine, private, private_folder
from feedwater.placement import local_ranks, placement

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 1),
        (TORCHRUN, 8),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": ""}, 16),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            4,
        ),
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_NUM_TASKS": "11",
                "SLURM_LOCALID": "3",
                "SLURM_STEP_ID": "0",
                "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
            },
            4,
        ),
        # More than there are in the job: what a larger allocation says.
        (
            {
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_ID": "0",
                "SLURM_NTASKS_PER_NODE": "8",
            },
            2,
        ),
    ],
)
def test_local_ranks_are_those_that_the_launcher_says(environment, expected):
    assert local_ranks(placement(env=environment), environment) == expected


@pytest.mark.parametrize(
    ("usable", "ranks", "alone", "beside_another"),
    [
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (4, 1, 3, 1),
        (8, 1, 7, 3),
        (8, 8, 4, 2),
        (64, 8, 56, 28),
        (3, 9, 2, 1),
    ],
)
def test_trainers_keep_a_cpu_each_and_the_daemon_at_least_half(
    usable, ranks, alone, beside_another
):
    assert private.split_cpus(usable, ranks, False) == alone
    assert private.split_cpus(usable, ranks, True) == beside_another


def test_ranks_of_a_launch_have_one_daemon_and_other_processes_their_own(monkeypatch):
    launch = {**TORCHRUN, "MASTER_ADDR": "host", "MASTER_PORT": "1"}
    one = private.key_of(placement(env=launch), None)
    assert one == private.key_of(placement(env={**launch, "RANK": "2", "LOCAL_RANK": "2"}), "x")
    assert one != private.key_of(placement(env={**launch, "MASTER_PORT": "2"}), None)
    # A group that torchrun starts again is the same launch.
    run = {**launch, "TORCHELASTIC_RUN_ID": "run"}
    again = {**run, "TORCHELASTIC_RESTART_COUNT": "3"}
    before = private.key_of(placement(env=run), None)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    assert before == private.key_of(placement(env=again), None)
    alone = private.key_of(placement(env={}), None)
    assert alone.startswith(f"pid-{os.getpid()}.")
    assert private.key_of(placement(0, 2), "sweep") == "sweep"


def test_a_folders_name_is_short_whatever_the_job_is_called():
    names = [private_folder.name_of(key) for key in ("a/b c", "a-b-c", "x" * 4000, "\n", "..", "")]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 35 and "/" not in name and name[0] != "." for name in names)


def test_the_program_is_looked_for_beside_the_package_then_in_the_path(monkeypatch, tmp_path):
    monkeypatch.delenv("FEEDWATERD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(private, "__file__", str(tmp_path / "site/feedwater/private.py"))
    with pytest.raises(feedwater.DaemonLost) as caught:
        private.find_program()
    for word in ("site/feedwater/bin/feedwaterd", str(tmp_path), "$FEEDWATERD", "install"):
        assert word in str(caught.value)
    for place in ("feedwaterd", "site/feedwater/bin/feedwaterd"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("#!/bin/sh\n")
        (tmp_path / place).chmod(0o755)
        assert private.find_program() == str(tmp_path / place)
    monkeypatch.setenv("FEEDWATERD", str(tmp_path))
    with pytest.raises(feedwater.DaemonLost, match="FEEDWATERD = "):
        private.find_program()


def test_a_folder_of_somebody_else_is_not_used(monkeypatch, tmp_path):
    base = tmp_path / "feedwater"
    monkeypatch.setattr(private_folder, "_runtime_bases", lambda: [str(base)])
    base.symlink_to(tmp_path)
    with pytest.raises(feedwater.PermissionDenied, match="not a folder of user"):
        private_folder.StartLock().__enter__()
    base.unlink()
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(feedwater.PermissionDenied, match="chmod 700"):
        private_folder.StartLock().__enter__()


def test_cpus_and_memory_are_within_the_control_groups(monkeypatch, tmp_path):
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (tmp_path / "outer/cpu.max").write_text("150000 100000\n")
    (tmp_path / "outer/memory.max").write_text("1048576\n")
    monkeypatch.setattr(machine, "_CGROUPS", str(tmp_path))
    groups = machine._groups
    (tmp_path / "cgroup").write_text("0::/outer/inner\n")
    monkeypatch.setattr(machine, "_groups", lambda name: groups(name, str(tmp_path / "cgroup")))
    assert machine.usable_cpus() == 1
    assert machine.usable_memory() == 1 << 20


def test_a_lifeline_is_let_go_a_while_after_its_last_user(monkeypatch, tmp_path):
    monkeypatch.setattr(lifeline, "GRACE_S", 0.05)
    os.mkfifo(tmp_path / lifeline.FIFO)
    assert lifeline.open_end(str(tmp_path)) is None  # no daemon
    daemon = os.open(tmp_path / lifeline.FIFO, os.O_RDONLY | os.O_NONBLOCK)
    line = lifeline.lifeline_of(str(tmp_path))
    assert lifeline.lifeline_of(str(tmp_path)) is line and not line.is_joined()
    users = [line.hold() for _ in range(2)]
    line.take(lifeline.open_end(str(tmp_path)))
    assert line.is_joined()
    users.pop().release()
    users.append(line.hold())
    users.clear()  # dropped without a word
    os.set_blocking(daemon, True)
    assert os.read(daemon, 1) == b""  # waits for the last writer's end
    assert not line.is_joined()
    # A daemon that ends is noticed, too.
    user = line.hold()
    os.set_blocking(daemon, False)
    line.take(lifeline.open_end(str(tmp_path)))
    assert line.is_joined()
    os.close(daemon)
    assert not line.is_joined()
    user.release()

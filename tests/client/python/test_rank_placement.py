"""Rank and world size: from process groups and launchers, and what job the ranks share.

The table of launchers' environments, for both clients, is in tests/conformance/test_placement.py.
"""

import logging
import multiprocessing
import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import pytest
from reading import epoch_positions, positions

import feedwater
from feedwater.placement import RankPlacement, placement

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500",
}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2"}


# --- process groups -------------------------------------------------------------------------------


@pytest.fixture
def group(monkeypatch):
    """Put modules in the places of torch.distributed, jax, Horovod, mpi4py, shaped as they are."""

    def torch(rank, world_size):
        module = ModuleType("torch.distributed")
        module.is_available = lambda: True
        module.is_initialized = lambda: rank is not None
        module.get_rank = lambda: rank
        module.get_world_size = lambda: world_size
        monkeypatch.setitem(sys.modules, "torch.distributed", module)

    def jax(rank, world_size):
        module = ModuleType("jax._src.distributed")
        module.global_state = SimpleNamespace(
            client=None if rank is None else object(),
            process_id=rank,
            num_processes=world_size,
            coordinator_address="host:123",
        )
        monkeypatch.setitem(sys.modules, "jax._src.distributed", module)

    def mpi4py(rank, world_size):
        module = ModuleType("mpi4py.MPI")
        module.Is_initialized = lambda: rank is not None
        module.Is_finalized = lambda: False
        module.COMM_WORLD = SimpleNamespace(Get_rank=lambda: rank, Get_size=lambda: world_size)
        monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)

    def horovod(rank, world_size, name="horovod.torch"):
        module = ModuleType(name)
        module.is_initialized = lambda: rank is not None
        module.rank, module.size, module.local_rank = lambda: rank, lambda: world_size, lambda: 0
        monkeypatch.setitem(sys.modules, name, module)

    return SimpleNamespace(torch=torch, jax=jax, horovod=horovod, mpi4py=mpi4py)


@pytest.mark.parametrize("kind", ["torch", "jax", "horovod", "mpi4py"])
def test_a_process_group_that_is_initialised_says_the_rank(group, kind):
    getattr(group, kind)(1, 2)
    found = placement(env={})
    assert (found.rank, found.world_size) == (1, 2)
    assert found.job  # its ranks meet


@pytest.mark.parametrize("kind", ["torch", "jax", "horovod", "mpi4py"])
def test_a_group_that_is_imported_and_not_initialised_says_nothing(group, kind):
    getattr(group, kind)(None, None)
    assert placement(env={}) == RankPlacement(0, 1, 0, None, None)
    assert placement(env=TORCHRUN).source == "torchrun"


def test_mpi4py_that_is_merely_imported_is_a_world_of_its_own_and_says_nothing(group):
    group.mpi4py(0, 1)
    assert placement(env=TORCHRUN).rank == 5
    group.torch(1, 2)
    assert placement(env={}).rank == 1


def test_nothing_is_imported_to_look_for_a_group():
    before = set(sys.modules)
    placement(env={})
    assert not {"torch", "jax", "mpi4py"} & (set(sys.modules) - before)


def test_ranks_of_a_group_and_of_its_launcher_meet_in_one_job(group):
    group.torch(5, 8)
    found = placement(env=TORCHRUN)
    assert found == RankPlacement(5, 8, 1, "torch.distributed", "n0:29500")


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"MASTER_ADDR": "n0", "MASTER_PORT": "1"}, "n0:1"),  # mp.spawn, env://
        ({}, f"group-of-pid-{os.getppid()}."),  # mp.spawn, tcp://
        ({**SLURM, "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "slurm-77.2"),  # in tasks of srun
        # Lightning: half of torchrun's environment.
        ({"WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "n", "MASTER_PORT": "2"}, "n:2"),
    ],
)
def test_spawned_ranks_of_a_group_meet_in_one_job(group, environment, job):
    group.torch(5, 8)
    found = placement(env=environment)
    assert (found.rank, found.world_size) == (5, 8)
    assert found.job.startswith(job)
    assert found.local_rank == int(environment.get("LOCAL_RANK", 5))


@pytest.mark.parametrize(
    ("rank", "world_size", "environment", "texts"),
    [
        (1, 2, {"RANK": "1", "WORLD_SIZE": "4"}, ["rank 1 of 2", "WORLD_SIZE=4"]),
        (2, 4, {"RANK": "1", "WORLD_SIZE": "4"}, ["rank 2 of 4", "RANK=1"]),
        (0, 1, SLURM, ["rank 0 of 1", "SLURM_PROCID=3"]),
    ],
)
def test_a_group_that_contradicts_the_launcher_is_refused(
    group, rank, world_size, environment, texts
):
    group.torch(rank, world_size)
    with pytest.raises(feedwater.FailedPrecondition) as caught:
        placement(env=environment)
    for text in texts:
        assert text in str(caught.value)
    assert placement(0, 1, environment).world_size == 1  # who says everything is believed


@pytest.mark.parametrize("name", ["torch", "tensorflow", "keras", "tensorflow.keras", "mxnet"])
def test_horovod_wins_over_its_variables_of_before_an_elastic_reset(group, name):
    """Its C++ sets new ones, which os.environ does not see."""
    stale = {"HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1"}
    group.horovod(1, 3, f"horovod.{name}")
    found = placement(env=stale)
    assert (found.rank, found.world_size, found.local_rank) == (1, 3, 0)
    group.horovod(2, 4, f"horovod.{name}")
    assert placement(env=stale).rank == 2
    with pytest.raises(feedwater.FailedPrecondition, match="Horovod says rank 2 of 4"):
        placement(env=TORCHRUN)  # not its own


def test_two_groups_that_contradict_one_another_are_refused(group):
    group.torch(1, 2)
    group.jax(0, 4)
    with pytest.raises(feedwater.FailedPrecondition, match=r"torch\.distributed.*jax"):
        placement(env={})


def test_a_loader_made_before_the_group_is_placed_anew_when_it_is_first_used(
    daemon, open_loader, group, caplog
):
    loader = open_loader(daemon)
    assert (loader.rank, loader.world_size, len(loader)) == (0, 1, 10)
    group.torch(1, 2)
    with caplog.at_level(logging.WARNING, "feedwater"):
        assert len(loader) == 5  # what a learning rate's schedule is made of
    assert "rank 1 of 2" in caplog.text
    assert (loader.rank, loader.world_size) == (1, 2)
    assert epoch_positions(loader, 0) == [p for s in range(5) for p in range(8 * s + 4, 8 * s + 8)]
    assert [request.world_size for request in daemon.requests] == [1, 2]


def test_a_state_that_was_loaded_before_the_group_holds_in_the_new_place(
    daemon, open_loader, group
):
    first = open_loader(daemon)
    iterator = iter(first)
    for _ in range(2):
        next(iterator)
    loader = open_loader(daemon)
    loader.load_state_dict(first.state_dict())
    group.torch(0, 2)
    assert epoch_positions(loader, 0) == [p for s in range(4) for p in range(8 * s + 8, 8 * s + 12)]


def test_a_batch_that_was_received_for_the_old_place_is_not_given_in_the_new_one(
    daemon, open_loader, group
):
    first = open_loader(daemon)
    iterator = iter(first)
    for _ in range(10):
        next(iterator)
    loader = open_loader(daemon)
    loader.load_state_dict(first.state_dict())
    loader.set_epoch(0)
    assert list(loader) == [], "found by looking at the first batch of the next epoch"
    group.torch(1, 2)
    assert epoch_positions(loader, 1) == [p for s in range(5) for p in range(8 * s + 4, 8 * s + 8)]


@pytest.mark.parametrize("kind", ["torch", "horovod"])
def test_a_loader_follows_one_group_after_the_other_until_it_is_used(
    daemon, open_loader, group, kind
):
    getattr(group, kind)(2, 4)
    loader = open_loader(daemon)
    assert (loader.rank, loader.world_size) == (2, 4)
    assert len(loader)  # the group and the loader have met
    getattr(group, kind)(1, 2)
    assert (len(loader), loader.rank, loader.world_size) == (5, 1, 2)
    epoch_positions(loader, 0)
    getattr(group, kind)(0, 3)
    with pytest.raises(feedwater.FailedPrecondition, match="made as rank 1 of 2, before"):
        iter(loader)


@pytest.mark.parametrize("use", [next, lambda iterator: None])
def test_a_loader_that_was_used_before_the_group_is_refused(daemon, open_loader, group, use):
    loader = open_loader(daemon)
    iterator = iter(loader)
    use(iterator)
    group.torch(1, 2)
    with pytest.raises(feedwater.FailedPrecondition, match="made as rank 0 of 1, before"):
        next(iterator)


def test_the_length_can_be_asked_while_a_batch_is_waited_for(daemon, open_loader):
    loader = open_loader(daemon)
    daemon.paused.set()
    waiting = threading.Thread(target=epoch_positions, args=(loader, 0))
    waiting.start()
    while not loader._lock.locked():
        time.sleep(0.001)
    assert len(loader) == 10
    daemon.paused.clear()
    waiting.join(60)
    assert not waiting.is_alive()


def test_steps_left_out_before_the_group_are_not_taken_for_the_groups(daemon, open_loader, group):
    loader = open_loader(daemon)
    loader.skip(0, 1)
    group.torch(1, 2)
    with pytest.raises(feedwater.FailedPrecondition, match="before the process group"):
        iter(loader)


def test_a_loader_with_its_own_rank_stays_where_it_is(daemon, open_loader, group):
    loader = open_loader(daemon, rank=0, world_size=1)
    group.torch(1, 2)
    assert positions(next(iter(loader))) == [0, 1, 2, 3]


# --- siblings that nobody told of one another -----------------------------------------------------


def _child(address, asked, answers):
    loader = None
    while asked.get() is not None:
        try:
            loader = feedwater.Loader("numbers", address=address, output="numpy")
            answers.put(("", loader.job))
        except feedwater.Error as error:
            answers.put((error.code, str(error)))


def test_children_of_one_process_that_both_say_rank_0_of_1_are_refused(daemon):
    """As under mp.spawn without a process group: the second would read the same samples."""
    spawn = multiprocessing.get_context("spawn")
    children = []
    for _ in range(2):
        asked, answers = spawn.SimpleQueue(), spawn.SimpleQueue()
        child = spawn.Process(target=_child, args=(str(daemon.directory), asked, answers))
        child.start()
        children.append((child, asked, answers))
    told = []
    for _, asked, answers in children:
        asked.put("open")
        told.append(answers.get())
    for child, asked, _ in children:
        asked.put(None)
        child.join(60)
    assert told[0][0] == "" and told[0][1].startswith(f"children-of-pid-{os.getpid()}.")
    assert told[1][0] == "ALREADY_EXISTS"
    assert "initialise the process group" in told[1][1]


@pytest.fixture
def data_loader_worker(monkeypatch):
    """Make this process a worker of a torch DataLoader that has so many."""

    def make(num_workers):
        module = ModuleType("torch.utils.data")
        module.get_worker_info = lambda: SimpleNamespace(num_workers=num_workers)
        monkeypatch.setitem(sys.modules, "torch.utils.data", module)

    return make


def test_workers_of_a_torch_data_loader_are_refused(data_loader_worker):
    data_loader_worker(2)
    for environment in ({}, TORCHRUN):
        with pytest.raises(feedwater.FailedPrecondition, match="2 workers of a torch DataLoader"):
            placement(env=environment)


def test_one_worker_of_a_torch_data_loader_needs_somebody_who_says_its_rank(
    data_loader_worker, group
):
    # Under mp.spawn each rank has a worker, which knows nothing of the process group.
    data_loader_worker(1)
    group.torch(None, None)
    with pytest.raises(feedwater.FailedPrecondition, match="a worker of a torch DataLoader"):
        placement(env={})
    assert placement(env=TORCHRUN).rank == 5
    assert placement(1, 2, {}).rank == 1
    group.torch(1, 2)  # a worker that was forked
    assert placement(env={}).rank == 1


@pytest.mark.parametrize("environment", [{}, TORCHRUN])
def test_two_workers_that_give_the_same_rank_meet_in_one_job(
    data_loader_worker, daemon, open_loader, monkeypatch, another_process, environment
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    data_loader_worker(2)
    place = placement(0, 4)
    assert place.job.startswith(f"children-of-pid-{os.getppid()}.")
    another_process()
    open_loader(daemon, rank=0, world_size=4)
    another_process()  # as in another worker
    with pytest.raises(feedwater.AlreadyExists, match="is attached") as caught:
        open_loader(daemon, rank=0, world_size=4)
    assert "know of one another" not in str(caught.value)
    another_process()
    open_loader(daemon, rank=1, world_size=4)  # the worker's own


# --- arguments ------------------------------------------------------------------------------------


def test_arguments_win_over_the_launcher():
    found = placement(0, 1, TORCHRUN)
    assert (found.rank, found.world_size, found.local_rank) == (0, 1, 1)


def test_a_program_with_its_own_ranks_is_not_put_into_the_launchers_job():
    # Every rank validates alone: with one job name the second would meet ALREADY_EXISTS.
    assert placement(0, 1, TORCHRUN).job is None
    assert placement(5, 8, TORCHRUN).job == "n0:29500"


@pytest.mark.parametrize("environment", [{}, TORCHRUN])
def test_half_a_pair_of_arguments_is_refused(environment):
    with pytest.raises(feedwater.InvalidArgument, match="rank is given but world_size is not"):
        placement(rank=1, env=environment)
    with pytest.raises(feedwater.InvalidArgument, match="world_size is given but rank is not"):
        placement(world_size=2, env=environment)


def test_a_variable_that_is_no_number_is_named():
    with pytest.raises(feedwater.InvalidArgument, match="WORLD_SIZE is 'many'"):
        placement(env={"RANK": "0", "WORLD_SIZE": "many"})
    assert placement(1, 2, {"RANK": "0", "WORLD_SIZE": "many"}).rank == 1


def test_ranks_of_a_launch_ask_for_the_same_job_and_loaders_of_a_process_for_different_ones(
    daemon, open_loader, monkeypatch, another_process
):
    for rank in ("0", "1"):
        for name, value in {**TORCHRUN, "RANK": rank, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, value)
        another_process()  # as in a process of its own
        open_loader(daemon)
        open_loader(daemon)
    jobs = [request.job for request in daemon.requests]
    assert jobs[0] == jobs[2] == "n0:29500/numbers#1"
    assert jobs[1] == jobs[3] == "n0:29500/numbers#2"
    assert [request.rank for request in daemon.requests] == [0, 0, 1, 1]


def test_a_loader_that_could_not_be_made_uses_no_number_up(
    daemon, open_loader, monkeypatch, another_process
):
    another_process()
    daemon.faults.refuse_open = (8, "no memory is left")
    daemon.faults.refuse_opens = 1
    with pytest.raises(feedwater.ResourceExhausted):
        open_loader(daemon)
    daemon.faults.refuse_open = None
    with monkeypatch.context() as later, pytest.raises(ZeroDivisionError):
        later.setattr("feedwater.loader.Converter", lambda *unused: 1 / 0)  # the stream is there
        open_loader(daemon)
    assert open_loader(daemon).job.endswith("/numbers#1")
    assert open_loader(daemon).job.endswith("/numbers#2")


def test_a_loader_that_was_refused_its_place_in_the_group_gives_its_number_back_when_it_is_closed(
    daemon, open_loader, group, another_process
):
    another_process()
    loader = open_loader(daemon)
    group.torch(1, 2)
    daemon.faults.refuse_open = (9, "all ranks of a job must agree")
    with pytest.raises(feedwater.FailedPrecondition):
        iter(loader)
    loader.close()
    daemon.faults.refuse_open = None
    assert open_loader(daemon).job.endswith("/numbers#1")

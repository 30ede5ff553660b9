"""A loader that is pickled is another one where it comes out, opened when it is first used."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
from reading import epoch_positions, positions

import feedwater

ALL = list(range(40))


def test_it_is_opened_when_it_is_first_used_and_no_earlier(daemon, open_loader):
    loader = open_loader(daemon)
    again = pickle.loads(pickle.dumps(loader))
    assert isinstance(again, feedwater.Loader)
    assert "opened when it is first used" in repr(again)
    assert again.num_workers == 0 and hasattr(again, "set_epoch")
    assert not hasattr(again, "__array_interface__")
    assert np.asarray(again)[()] is again
    assert len(daemon.sessions) == 1
    with again:
        assert len(again) == 10
        assert len(daemon.sessions) == 2
        assert type(again) is feedwater.Loader
        assert epoch_positions(again) == ALL
        assert epoch_positions(loader) == ALL
    assert not again.is_open and loader.is_open


def test_it_has_the_same_arguments_and_stands_at_the_same_place(daemon, open_loader):
    loader = open_loader(daemon, batch_size=2, seed=7, slots=3, writable=True)
    loader.set_epoch(4)
    iterator = iter(loader)
    seen = [p for _ in range(3) for p in positions(next(iterator))]
    twice = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(loader))))  # through two processes
    with twice:
        assert (twice.batch_size, twice.seed, twice.epoch) == (2, 7, 4)
        assert (twice.address, twice.output) == (loader.address, "numpy")
        rest = []
        for batch in twice:
            assert batch["image"].flags.writeable
            rest += positions(batch)
        assert (seen, rest) == (ALL[:6], ALL[6:])
        assert twice.stats()["slots"] == 3


def test_a_file_goes_with_it_as_text(daemon, open_loader, tmp_path):
    path = tmp_path / "numbers.yaml"
    path.write_text("version: 1\n")
    with feedwater.Loader(path, address=str(daemon.directory), output="numpy") as loader:
        packed = pickle.dumps(loader)
    path.unlink()
    with pickle.loads(packed) as again:
        assert again._feed.stream.options.pipeline_text == "version: 1\n"
        assert len(list(again)) == 10


def test_one_that_was_closed_before_it_was_opened_stays_closed(daemon, open_loader):
    again = pickle.loads(pickle.dumps(open_loader(daemon)))
    again.close()
    again.close()
    for _ in range(2):
        with pytest.raises(feedwater.FailedPrecondition, match="the loader is closed"):
            iter(again)
    assert len(daemon.sessions) == 1


def test_asked_whether_it_is_open_it_does_not_open_itself(daemon, open_loader):
    again = pickle.loads(pickle.dumps(open_loader(daemon)))
    assert again.is_open
    assert len(daemon.sessions) == 1
    again.close()
    assert not again.is_open


def test_what_cannot_be_opened_may_be_tried_again(daemon, open_loader):
    loader = open_loader(daemon)
    again = pickle.loads(pickle.dumps(loader))
    daemon.faults.refuse_open = (7, "user 5 may not connect")
    for _ in range(2):
        with pytest.raises(feedwater.PermissionDenied, match="user 5"):
            len(again)
    daemon.faults.refuse_open = None
    with again:
        assert epoch_positions(again) == ALL


def test_the_state_of_another_dataset_is_refused_and_nothing_stays_open(daemon, open_loader):
    loader = open_loader(daemon)
    again = pickle.loads(pickle.dumps(loader))

    def other(answer) -> None:
        answer.dataset_digest = "e" * 32

    daemon.faults.edit_answer = other
    with pytest.raises(feedwater.FailedPrecondition, match="another dataset"):
        len(again)
    daemon.faults.edit_answer = bool
    assert len(daemon.sessions) == 1
    with again:  # the old files are back
        assert epoch_positions(again) == ALL


def test_a_loader_cannot_be_copied_and_says_what_to_do(daemon, open_loader):
    loader = open_loader(daemon)
    for action in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"load this one's state_dict\(\)"):
            action(loader)


def _rank(rank: int, world_size: int, loader: feedwater.Loader, queue) -> None:
    """Say who it is, as a launcher would, before the loader is used."""
    import os

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="1")
    with loader:
        queue.put((loader.rank, [np.array(p).tolist() for b in loader for p in positions(b)]))


def test_workers_that_get_it_are_ranks_of_one_job(daemon, open_loader):
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    loader = open_loader(daemon)
    workers = [spawn.Process(target=_rank, args=(r, 2, loader, queue)) for r in range(2)]
    for worker in workers:
        worker.start()
    got = dict(queue.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert got == {
        0: [p for p in ALL if p // 4 % 2 == 0],
        1: [p for p in ALL if p // 4 % 2 == 1],
    }

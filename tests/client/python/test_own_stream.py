"""Iterable datasets, as processes make their records one after the other for a fake daemon. Order
and resuming through a real daemon are in tests/integration.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import time

import numpy as np
import own_datasets as own
import pytest
from fake_asker import FAILED, MADE, TOO_LARGE
from own_processes import PATIENCE_S, wait_for

import feedwater
from feedwater import errors

EPOCH = (77, 5)  # its seed and its number


@pytest.fixture
def stream(serve):
    """Serve an iterable dataset; return the first worker's asker."""
    return lambda data, **options: serve(data, **{"length": 40, **options})


def first(answers) -> list[float]:
    assert all(answer.code == MADE for answer in answers), [answer.text for answer in answers]
    return [float(answer.tensors[0].flat[0]) for answer in answers]


def test_each_process_is_a_worker_with_a_part_of_its_own(serve, daemon):
    serve(own.Stream(), length=40, workers=3)
    while len(daemon.askers) < 3:
        pass
    askers = {asker.request.source.worker: asker for asker in daemon.askers}
    assert sorted(askers) == [0, 1, 2]
    assert all(asker.request.source.workers == 3 for asker in daemon.askers)
    assert all(asker.request.source.records == 40 for asker in daemon.askers)
    for worker, asker in askers.items():
        assert first(asker.get(worker, worker + 3, worker + 6, seed=EPOCH)) == [
            worker, worker + 3, worker + 6
        ]  # fmt: skip


def test_a_place_ahead_and_a_place_before_are_reached(stream, caplog):
    asker = stream(own.Stream(9000), length=9000)
    assert first(asker.get(20, 3, 21, 4, 4, seed=EPOCH)) == [20, 3, 21, 4, 4]
    assert first(asker.get(8500, seed=EPOCH)) == [8500]  # too far ahead for all to be kept
    with caplog.at_level(logging.WARNING, "feedwater"):
        for _ in range(2):  # it begins anew, and says so once
            assert first(asker.get(7, 8501, seed=EPOCH)) == [7, 8501]
        told = "worker 0 of 1 begins epoch 5 anew for its sample 7, having stood at 8501"
        wait_for(lambda: told in caplog.text, "the program is told")
    assert caplog.text.count("begins epoch") == 1


def test_what_is_skipped_over_is_kept_until_it_is_asked_for(stream):
    """Bursts of the daemon's workers come in any order, and an iterator begins once."""
    asker = stream(own.Drawn(3000), length=3000)
    bursts = [range(32 * n, 32 * n + 32) for n in range(80)]  # 2,560: more than are given
    order = [*bursts[1:], bursts[0]]
    got = {}
    for burst in order:
        for answer in asker.get(*burst, seed=EPOCH):
            number, *drawn = answer.tensors[0].tolist()
            got[number] = drawn
    assert sorted(got) == list(range(2560))
    again = stream(own.Drawn(3000), length=3000, name="again")
    for burst in bursts[:4]:
        for answer in again.get(*burst, seed=EPOCH):
            number, *drawn = answer.tensors[0].tolist()
            assert got[number] == drawn


def test_a_dataset_that_does_not_repeat_itself_gives_each_sample_once(stream, tmp_path):
    asker = stream(own.Queue(str(tmp_path)), length=3000)
    bursts = [range(32 * n, 32 * n + 32) for n in range(80)]
    got = []
    for burst in [*bursts[1:], bursts[0]]:
        got += first(asker.get(*burst, seed=EPOCH))
    assert sorted(got) == list(range(3, 2563))  # a look was taken at the first ones


def test_without_seeds_epochs_leave_the_generators_alone(stream):
    """What a dataset draws goes on from one epoch to the other, back and forth."""
    asker = stream(own.Drawn(), seeded=False)
    rows = []
    for record in range(10):
        for seed in (EPOCH, (78, 6)):
            rows.append(asker.get(record, seed=seed)[0].tensors[0].tolist())
    assert len({row[1] for row in rows}) == len({row[2] for row in rows}) == 20


def test_two_epochs_at_once_do_not_mix_their_random_numbers(stream):
    def numbers(asker, *asked):
        return [
            asker.get(record, seed=seed)[0].tensors[0].tolist()
            for record, seed in asked
        ]  # fmt: skip

    asker = stream(own.Drawn())
    one = numbers(asker, *((record, EPOCH) for record in range(6)))
    two = numbers(asker, *((record, (78, 6)) for record in range(6)))
    assert [row[0] for row in one] == list(range(6))
    assert {row[3] for row in one} == {5} and {row[3] for row in two} == {6}
    assert {row[4] for row in one + two} == {1}, "each epoch has a fresh copy"
    assert not {row[1] for row in one} & {row[1] for row in two}
    again = stream(own.Drawn(), name="again")
    turns = [(record, seed) for record in range(6) for seed in (EPOCH, (78, 6))]
    got = numbers(again, *turns)
    assert (got[::2], got[1::2]) == (one, two)


def test_an_iterator_that_raises_is_a_bad_sample_and_says_when_it_has_ended(stream):
    for _ in range(2):  # the second time from what is kept
        dead = stream(own.Stream(raises_at=4), name=f"dead{_}").get(3, 4, 5, seed=EPOCH)
        assert [answer.code for answer in dead] == [MADE, FAILED, FAILED]
        assert dead[1].text.startswith("ValueError: sample 4 is bad\nTraceback")
        assert "own_stream.py" not in dead[1].text
        assert (
            "ended in worker 0 of 1 after 5 samples; by length=40 this worker has 40"
            in dead[2].text
        )
        assert "It had raised ValueError at its sample 4, which ends a generator" in dead[2].text
    rugged = stream(own.Rugged(raises_at=4), name="rugged").get(3, 4, 5, 4, seed=EPOCH)
    assert [answer.code for answer in rugged] == [MADE, FAILED, MADE, FAILED]


def test_a_dataset_that_ends_early_is_told_with_both_numbers(stream):
    answers = stream(own.Stream(records=10), workers=1).get(9, 10, 11, 3, seed=EPOCH)
    assert [answer.code for answer in answers] == [MADE, FAILED, FAILED, MADE]
    for answer in answers[1:3]:
        assert (
            "ended in worker 0 of 1 after 10 samples; by length=40 this worker has 40"
            in answer.text
        )
        assert "Cure: length=10, the most with which this worker has enough" in answer.text


def test_workers_that_give_the_same_are_told(serve, caplog):
    with caplog.at_level(logging.WARNING, "feedwater"):
        serve(own.Stream(), name="shared", length=40, workers=2)
        assert "begin with the same samples" not in caplog.text
        serve(own.Unshared(), name="one", length=40, workers=1)
        assert "begin with the same samples" not in caplog.text
        serve(own.Unshared(), name="unshared", length=40, workers=2)
    assert "workers 0 and 1 of the iterable dataset begin with the same samples" in caplog.text


def test_torch_tells_the_worker_too(serve):
    data = pytest.importorskip("torch.utils.data")
    assert feedwater.get_worker_info() is data.get_worker_info() is None
    asker = serve(own.torch_stream(), length=40, workers=3)
    worker = asker.request.source.worker
    assert first(asker.get(worker, worker + 3, seed=EPOCH)) == [worker, worker + 3]


TORCH = {  # what is asked of torch, where there is none
    "torch/__init__.py": (
        "import random\n"
        "class Generator:\n"
        "    random = random.Random()\n"
        "    def manual_seed(self, seed): self.random.seed(seed)\n"
        "    def get_state(self): return self.random.getstate()\n"
        "    def set_state(self, state): self.random.setstate(state)\n"
        "class Tensor: pass\n"
        "default_generator = Generator()\n"
        "def rand(shape): return default_generator.random.random()\n"
    ),
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": (
        "from ._utils import worker\ndef get_worker_info(): return worker._worker_info\n"
    ),
    "torch/utils/data/_utils/__init__.py": "",
    "torch/utils/data/_utils/worker.py": (
        "from types import SimpleNamespace as WorkerInfo\n_worker_info = None\n"
    ),
}


def test_torch_may_be_imported_where_the_iteration_begins(serve, daemon, tmp_path, monkeypatch):
    """It tells the worker, and is seeded, from the first epoch on."""
    if importlib.util.find_spec("torch") is None:
        for name, text in TORCH.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
    got = []
    for name in ("a", "b"):
        serve(own.LateTorch(), name=name, length=40, workers=3)
        asker = next(
            one
            for one in daemon.askers
            if (one.request.name, one.request.source.worker) == (name, 1)  # has not taken a look
        )
        worker = 1
        got.append(
            [
                answer.tensors[0].tolist()
                for seed in (EPOCH, (78, 6))
                for answer in asker.get(worker, worker + 3, seed=seed)
            ]
        )
    assert [row[0] for row in got[0]] == 2 * [worker, worker + 3]
    assert got[0] == got[1]
    assert len({row[1] for row in got[0]}) == 4


def test_serving_begins_when_each_worker_is_there(serve, daemon):
    serve(own.SlowlyOpened(), length=40, workers=3)
    assert sorted(asker.request.source.worker for asker in daemon.askers) == [0, 1, 2]


def test_a_worker_that_always_dies_is_given_up_though_others_work(serve, daemon):
    serve(own.Doomed(), length=40, workers=2)
    served = serve.served[0]
    healthy = next(asker for asker in daemon.askers if asker.request.source.worker == 0)
    until = time.monotonic() + PATIENCE_S
    asked, place = set(), 0
    while served.is_open and time.monotonic() < until:
        for asker in list(daemon.askers):
            if asker.request.source.worker == 1 and id(asker) not in asked:
                asked.add(id(asker))
                with contextlib.suppress(OSError):
                    asker.ask(1, seed=EPOCH)
        with contextlib.suppress(OSError, EOFError):  # the source is given up at any moment
            healthy.get(place := (place + 2) % 40, seed=EPOCH)
    with pytest.raises(errors.FailedPrecondition, match="6 processes of worker 1 ended one after"):
        served.check()


def test_more_ranks_than_samples_are_refused(daemon):
    with pytest.raises(errors.InvalidArgument, match="length=3 with world size 4"):
        feedwater.Loader.from_dataset(
            own.Stream(), length=3, rank=3, world_size=4, address=str(daemon.directory)
        )


def test_a_daemon_that_knows_no_workers_is_refused(stream, daemon):
    daemon.faults.knows_no_workers = True
    with pytest.raises(errors.FailedPrecondition, match="iterable dataset, of which the daemon"):
        stream(own.Stream())


def test_what_is_skipped_may_take_longer_than_one_sample(stream):
    asker = stream(own.Slow(), timeout=1.0)
    assert first(asker.get(39, seed=EPOCH)) == [39]


def test_a_skip_that_nobody_waits_for_ends(stream):
    """The daemon marks the entry; the iterator stays where it is, and goes on from there."""
    asker = stream(own.Slow(9000), length=9000)
    asker.ask(8000, 8001, seed=EPOCH)
    time.sleep(0.3)
    for number in range(2):
        asker.mark_unwanted(number)
    began = time.monotonic()
    got = asker.answers()
    assert time.monotonic() - began < PATIENCE_S / 3, "400 s are not waited for"
    assert [(one.code, one.text) for one in got] == 2 * [(FAILED, "nobody waits for it any more")]
    assert first(asker.get(3, 40, seed=EPOCH)) == [3, 40]


def test_what_nobody_waited_for_is_made_when_it_is_wanted(stream):
    """Also where the window had no room for the text that says so."""
    asker = stream(own.Slow(9000), length=9000)
    asker.give_region(4096, entries=64)
    asker.ask(100, seed=EPOCH)
    asker.mark_unwanted(0)
    assert asker.answers()[0].code == TOO_LARGE
    asker.give_region(1 << 16)
    assert first(asker.get(100, seed=EPOCH)) == [100]


def test_a_generator_is_no_dataset(daemon):
    def numbers():
        yield 1.0

    for given in (numbers, numbers()):
        with pytest.raises(errors.InvalidArgument, match="Cure: an object whose __iter__ begins"):
            feedwater.Loader.from_dataset(given, length=4, address=str(daemon.directory))


def test_each_step_of_the_first_look_has_its_time(serve):
    """And a message of its own: what took too long."""
    asker = serve(own.Slow(pause=0.4), length=40, timeout=1.0)  # 1.2 s for three samples
    assert first(asker.get(0, seed=EPOCH)) == [0]
    for dataset, step in [
        (own.Slow(pause=30, at=2), "sample 2 of worker 0"),
        (own.Stuck(records=9, at=4), "record 4 of 9"),
        (own.Stuck(records=9, at=None), "its length"),
    ]:
        length = 40 if isinstance(dataset, own.Slow) else None
        with pytest.raises(errors.InvalidArgument) as raised:
            serve(dataset, name="stuck", length=length, timeout=0.5)
        assert f"while it made {step}, which took longer than timeout=0.5. Cure: a larger" in str(
            raised.value
        )


def test_shuffle_and_length_of_a_loader(daemon):
    for options, text in [
        ({"shuffle": True, "length": 4}, "shuffle=True: an iterable dataset makes its samples one"),
        ({}, "say length=, the samples of an epoch on all ranks"),
    ]:
        with pytest.raises(errors.InvalidArgument, match=text):
            feedwater.Loader.from_dataset(own.Stream(), address=str(daemon.directory), **options)


@pytest.mark.parametrize(
    "name, text",
    [
        ("num_workers", "it is called `workers`"),
        ("sampler", "`shuffle=`, `seed=`"),
        ("batch_sampler", "`batch_size=`, `shuffle=` and `drop_last=`"),
        ("collate_fn", "a `Ragged` where rows differ"),
        ("pin_memory", "`device=`"),
        ("worker_init_fn", "seeded for each record"),
        ("persistent_workers", "the processes stay"),
        ("prefetch_factor", "`slots=`"),
        ("generator", "`seed=`"),
        ("batchsize", "did you mean 'batch_size'"),
    ],
)
def test_arguments_of_a_data_loader_are_answered(name, text):
    with pytest.raises(TypeError) as raised:
        feedwater.Loader.from_dataset(own.Numbers(), **{name: 1})
    assert str(raised.value).startswith(f"feedwater.Loader.from_dataset has no argument '{name}'")
    assert text in str(raised.value)


def test_bytes_of_a_sample_may_be_used_again(stream):
    answers = stream(own.Drawn()).get(0, 2, 1, seed=EPOCH)
    assert [answer.tensors[0][0] for answer in answers] == [0, 2, 1]
    assert all(np.isfinite(answer.tensors[0]).all() for answer in answers)

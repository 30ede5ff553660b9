"""An iterable dataset of a user's own through a real daemon: `Loader.from_dataset` and
`serve_source`.

The promise under test: each sample once, in the order that the workers take turns in, on all ranks
and after any restart; where the dataset does not keep its length, an error that says so.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import own_datasets as own
import pytest
from own_loaders import (
    daemon_fixture,  # noqa: F401
    open_loader_fixture,  # noqa: F401
)
from own_processes import PATIENCE_S, processes_of, wait_for

import feedwater
from feedwater import Loader, Pipeline, errors
from feedwater.control import Control, messages

TESTS = Path(__file__).resolve().parents[1]
BATCH_SIZE = 4


def numbers_of(batches) -> list[int]:
    """Return the numbers of batches of `Stream`."""
    return [int(number) for image, _ in batches for number in image[:, 0, 0]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_take_turns_in_each_epoch(open_loader, workers):
    loader = open_loader(own.Stream(), length=40, workers=workers)
    assert (len(loader), len(loader.dataset)) == (10, 40)
    for _ in range(3):
        assert numbers_of(loader) == list(range(40))
    loader.set_epoch(7)
    assert numbers_of(loader) == list(range(40))


def test_a_length_of_its_own_and_what_is_over(open_loader):
    assert numbers_of(open_loader(own.Sized(30))) == list(range(30))
    assert numbers_of(open_loader(own.Sized(30), length=9, drop_last=True)) == list(range(8))


def test_epochs_have_their_numbers_and_what_is_random(open_loader):
    def rows(loader) -> list[list[float]]:
        return [row for (batch,) in loader for row in batch.tolist()]

    loader = open_loader(own.Drawn(), length=40, seed=3)
    epochs = [rows(loader) for _ in range(3)]
    for number, epoch in enumerate(epochs):
        assert [row[0] for row in epoch] == list(range(40))
        assert {row[3] for row in epoch} == {number} and {row[4] for row in epoch} == {1}
    drawn = {tuple(row[1:3]) for epoch in epochs for row in epoch}
    assert len(drawn) == 120
    again = open_loader(own.Drawn(), length=40, seed=3)
    again.set_epoch(1)
    assert rows(again) == epochs[1]


def test_a_saved_state_goes_on_with_the_next_sample(open_loader):
    loader = open_loader(own.Drawn(), length=40)
    whole = [batch[0].tolist() for batch in loader] + [batch[0].tolist() for batch in loader]
    loader.set_epoch(1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    loader.close()
    again = open_loader(own.Drawn(), length=40)
    again.load_state_dict(state)
    assert [batch[0].tolist() for batch in again] == whole[13:]
    for options in ({"workers": 3}, {"workers": 2, "length": 39}):
        with open_loader(own.Drawn(), **{"length": 40, **options}) as other:
            with pytest.raises(errors.FailedPrecondition, match="belongs to another dataset") as no:
                other.load_state_dict(state)
            assert (
                f"with other workers= (here {options['workers']} on each rank), length= (here "
                f"{options.get('length', 40)}), fields or version=" in str(no.value)
            )


def test_a_process_that_dies_is_replaced_and_nothing_is_lost(open_loader, tmp_path):
    loader = open_loader(own.Stream(die=str(tmp_path / "died")), length=40)
    assert numbers_of(loader) == list(range(40))
    assert (tmp_path / "died").exists()
    got = []
    for image, _ in loader:
        got += [int(number) for number in image[:, 0, 0]]
        if len(got) == 12:
            server = next(p for p in processes_of(os.getpid()) if processes_of(p))
            os.kill(processes_of(server)[0], signal.SIGKILL)
    assert got == list(range(40))


RANK = f"""
import json, sys
sys.path.insert(0, {str(TESTS)!r})
import own_datasets as own, feedwater

if __name__ == "__main__":
    rank, address, records = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with feedwater.Loader.from_dataset(
        own.Stream(records), batch_size=4, workers=2, length=records, rank=rank, world_size=2,
        job="ours", address=address, output="numpy",
    ) as loader:
        for _ in range(2):
            batches = [image[:, 0, 0].astype(int).tolist() for image, _ in loader]
            print(json.dumps(batches), flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize("records", [40, 45])
def test_ranks_have_parts_of_their_own(daemon, folder, records):
    script = folder / "rank.py"
    script.write_text(RANK)
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), daemon.address, str(records)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for _ in range(2):
        got = [json.loads(rank.stdout.readline()) for rank in ranks]
        for number, batches in enumerate(got):
            assert {one % 2 for batch in batches for one in batch} == {number}
        assert sorted(one for batches in got for batch in batches for one in batch) == list(
            range(records)
        )
        assert [len(batches) for batches in got] == [-(-records // 8)] * 2
    for rank in ranks:
        rank.communicate("\n", timeout=PATIENCE_S)
        assert rank.returncode == 0


def test_a_state_of_another_world_size_is_refused(open_loader, daemon):
    loader = open_loader(own.Stream(), length=40, workers=2)
    next(iter(loader))
    state = loader.state_dict()
    loader.close()
    script = "of an iterable dataset each rank makes its own samples"
    rank = open_loader(
        own.Stream(), length=40, workers=1, rank=0, world_size=2, job="two",
    )  # fmt: skip
    with pytest.raises(errors.FailedPrecondition, match=f"world size 1, .* is 2: {script}"):
        rank.load_state_dict(state)


def test_replay_of_what_nobody_makes_any_more_has_the_state(open_loader):
    loader = open_loader(own.Stream(), length=40)
    batches = iter(loader)
    next(batches)
    loader._served.close()
    with pytest.raises(errors.DaemonLost, match="no process serves worker") as raised:
        loader.replay(9)
    assert raised.value.state == loader.state_dict()


def test_a_dataset_that_ends_early_fails_with_both_numbers(open_loader):
    loader = open_loader(own.Stream(21), length=40)
    got = []
    with pytest.raises(errors.BadSample) as raised:
        for image, _ in loader:
            got += [int(number) for number in image[:, 0, 0]]
    assert got == list(range(20))
    assert "ended in worker 1 of 2 after 10 samples; by length=40 this worker has 20" in str(
        raised.value
    )


def test_an_iterator_that_raises_is_a_bad_sample(open_loader):
    loader = open_loader(own.Rugged(raises_at=13), length=40, on_bad_sample="substitute")
    got = numbers_of(loader)
    assert got[13] == 15, "the same worker's next one stands in"
    assert len(got) == 40 and sorted(set(got)) == [n for n in range(40) if n != 13]
    assert numbers_of(loader) == got
    failing = open_loader(own.Stream(raises_at=13), length=40, on_bad_sample="fail")
    with pytest.raises(errors.BadSample, match="sample 13 is bad"):
        list(failing)


def test_bad_samples_are_those_of_their_epoch(open_loader, daemon):
    """Sample 13 of epoch 1 is another one: nothing that is kept of epoch 0's may be said of it."""
    loader = open_loader(own.OnceBad(), length=40, on_bad_sample="substitute", job="bad")
    got = [numbers_of(loader) for _ in range(2)]
    assert got[0][13] == 15 and got[1] == list(range(40))

    def bad_in(epoch: int) -> list[int]:
        request = messages.GetLedgerRequest(job="bad", step=3, epoch=epoch)
        with Control(daemon.address) as control:
            entries = control.call("GetLedger", request, PATIENCE_S).entries
        assert [entry.record for entry in entries] == [12, 13, 14, 15]
        return [entry.record for entry in entries if entry.is_bad]

    assert (bad_in(0), bad_in(1)) == ([13], [])
    with Control(daemon.address) as control:
        (listed,) = control.call(
            "ListBadSamples", messages.ListBadSamplesRequest(), PATIENCE_S
        ).samples
    assert (listed.record, listed.path, listed.count) == (13, "epoch 0", 1)


def test_a_bad_sample_is_named_without_a_file_and_with_a_cure_that_is_not_taken(open_loader):
    failing = open_loader(own.Rugged(raises_at=13), length=40, on_bad_sample="fail")
    with pytest.raises(errors.BadSample) as raised:
        list(failing)
    assert str(raised.value).startswith(
        "record 13 at epoch 0, step 3: ValueError: sample 13 is bad"
    )
    cure = '\nValueError: sample 13 is bad. Mend or remove it, or say on_bad_sample="substitute"'
    assert cure in str(raised.value)
    last = open_loader(own.Rugged(raises_at=39), length=40, on_bad_sample="substitute")
    with pytest.raises(errors.BadSample) as raised:
        list(last)
    assert "no record after it of its worker is left in the epoch to stand in" in str(raised.value)
    assert "on_bad_sample" not in str(raised.value)


SKIPS = """
import sys, feedwater
with feedwater.Loader(
    feedwater.Pipeline(
        dataset={"format": "python", "name": "numbers"}, batch=4, outputs=["field0", "field1"]
    ),
    address=sys.argv[1], output="numpy",
) as loader:
    loader.skip(0, 900)
    next(iter(loader))
"""


def test_samples_that_are_left_out_are_told_from_others(open_loader, caplog):
    options = {"length": 40, "on_bad_sample": "skip_with_count"}
    with caplog.at_level(logging.WARNING, "feedwater"):
        told = open_loader(own.Rugged(raises_at=13), outputs=["field0", "is_real"], **options)
        assert "is_real" not in caplog.text
        real = [bool(one) for _, is_real in told for one in is_real]
        open_loader(own.Rugged(raises_at=13), **options)
    assert real == [n != 13 for n in range(40)]
    assert "Cure: outputs=['field0', 'field1', 'is_real']" in caplog.text


def test_a_skip_that_nobody_waits_for_any_more_ends(daemon, tmp_path):
    """A trainer went far ahead and has died: the next reader does not wait for its samples."""
    told = tmp_path / "told"
    with feedwater.serve_source(
        "numbers", own.Told(str(told)), length=4000, workers=1, address=daemon.address
    ):
        skips = subprocess.Popen([sys.executable, "-c", SKIPS, daemon.address])
        wait_for(lambda: told.exists() and told.stat().st_size > 20, "the skip is under way")
        skips.kill()
        skips.wait()
        began = time.monotonic()
        pipeline = Pipeline(
            dataset={"format": "python", "name": "numbers"}, batch=4, outputs=["field0", "field1"]
        )
        with Loader(pipeline, address=daemon.address, output="numpy") as loader:
            image, _ = next(iter(loader))
        assert image[:, 0, 0].tolist() == [0, 1, 2, 3]
        assert time.monotonic() - began < 60, "the skip alone takes 180 s"


def test_a_source_is_read_in_its_order_alone(daemon):
    with feedwater.serve_source(
        "numbers", own.Stream(), length=40, workers=2, address=daemon.address
    ):
        dataset = {"format": "python", "name": "numbers"}
        shuffled = Pipeline(dataset=dataset, sampler={"shuffle": "full"}, batch=4)
        with pytest.raises(errors.InvalidArgument, match=r"shuffle: full}: .*iterable"):
            Loader(shuffled, address=daemon.address)
        plain = Pipeline(dataset=dataset, batch=4, outputs=["field0", "field1"])
        with Loader(plain, address=daemon.address, output="numpy") as loader:
            assert numbers_of(loader) == list(range(40))
            third = loader.replay(2)
            assert np.array_equal(third[0][:, 0, 0], range(8, 12))

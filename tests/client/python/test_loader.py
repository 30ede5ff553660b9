"""What a loader delivers and tells, against the fake daemon; epochs and states are those of
test_loader_positions.py.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from own_processes import wait_for
from reading import check, epoch_positions, positions, where

import feedwater
from feedwater import stream
from feedwater.session import Session
from feedwater.statistics import Replaced
from feedwater.wire import LAST_IN_EPOCH, SKIPPED, Ready

ALL = list(range(40))


def test_one_for_is_one_epoch_and_the_next_for_the_next(daemon, open_loader):
    loader = open_loader(daemon)
    assert epoch_positions(loader, 0) == ALL
    assert epoch_positions(loader, 1) == ALL
    assert epoch_positions(loader, 2) == ALL
    assert daemon.counts["seeks"] == 0


def test_the_loader_tells_what_it_delivers(daemon, open_loader):
    loader = open_loader(daemon, rank=1, world_size=2)
    assert (len(loader), len(loader.sampler), len(loader.dataset)) == (5, 20, 40)
    assert (loader.batch_size, loader.rank, loader.world_size, loader.epoch) == (4, 1, 2, 0)
    assert loader.classes == loader.dataset.classes == [f"class{i}" for i in range(10)]
    assert list(loader.fields) == [
        "image",
        "label",
        "sample_id",
        "position",
        "is_real",
        "half",
        "pixels",
    ]
    image = loader.fields["image"]
    assert image == (np.dtype("float32"), (3, 4, 5)) == (image.dtype, image.shape)
    assert loader.fields["label"].shape == ()
    assert loader.fields["half"].dtype_name == "bfloat16"
    assert loader.is_open


def test_batches_are_tuples_in_the_order_of_the_outputs_or_dicts(daemon, open_loader):
    for batch in open_loader(daemon, as_dict=False, job="tuples"):
        assert isinstance(batch, tuple)
        assert batch[0].shape == (4, 3, 4, 5) and batch[1].shape == (4,)
    for batch in open_loader(daemon, as_dict=True, job="dicts"):
        assert list(batch)[:2] == ["image", "label"]


def test_arguments_reach_the_daemon_and_what_is_left_out_is_its_choice(daemon, open_loader):
    loader = open_loader(daemon, batch_size=8, seed=7, slots=3, job="j", rank=0, world_size=2)
    first = daemon.requests[-1]
    assert (first.batch_size, first.seed, first.slots, first.job, first.rank, first.world_size) == (
        8, 7, 3, "j", 0, 2,
    )  # fmt: skip
    assert (loader.batch_size, loader.seed, loader.job) == (8, 7, "j")
    open_loader(daemon)
    second = daemon.requests[-1]
    assert not any(second.HasField(name) for name in ("batch_size", "seed", "slots"))
    assert second.client == "python 0.1.0"


def test_numpy_integers_are_integers_and_floats_are_not(daemon, open_loader):
    assert open_loader(daemon, batch_size=np.int64(2)).batch_size == 2
    with pytest.raises(feedwater.InvalidArgument, match=r"batch_size is 2\.5"):
        open_loader(daemon, batch_size=2.5)


def test_a_pipeline_file_is_sent_as_text(daemon, open_loader, tmp_path):
    path = tmp_path / "numbers.yaml"
    path.write_text("version: 1 # ü\n")
    for pipeline in (str(path), path):
        with feedwater.Loader(pipeline, address=str(daemon.directory), output="numpy") as loader:
            assert loader.pipeline == "numbers"
        text = daemon.requests[-1].pipeline.text
        assert (text.yaml, text.file_name) == ("version: 1 # ü\n", str(path))
    with pytest.raises(feedwater.NotFound, match=r"absent\.yaml"):
        feedwater.Loader(tmp_path / "absent.yaml", address=str(daemon.directory), output="numpy")
    path.write_text("#" * (256 * 1024 + 1))
    with pytest.raises(feedwater.InvalidArgument, match="256 KiB"):
        feedwater.Loader(path, address=str(daemon.directory), output="numpy")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(feedwater.InvalidArgument, match="cannot read"):
        feedwater.Loader(path, address=str(daemon.directory), output="numpy")


def test_an_unknown_pipeline_is_not_found(daemon):
    with pytest.raises(feedwater.NotFound, match="did you mean 'numbers'"):
        feedwater.Loader("nombers", address=str(daemon.directory), output="numpy")
    with pytest.raises(feedwater.InvalidArgument, match="is of type int: it is a name or the path"):
        feedwater.Loader(17, address=str(daemon.directory), output="numpy")


def test_a_second_loader_of_a_rank_is_refused_and_close_makes_room(daemon, open_loader):
    first = open_loader(daemon, job="j")
    with pytest.raises(feedwater.AlreadyExists):
        open_loader(daemon, job="j")
    first.close()
    first.close()
    assert not first.is_open
    open_loader(daemon, job="j")


def test_a_closed_loader_says_so_but_still_has_its_state(daemon, open_loader):
    with open_loader(daemon) as loader:
        iterator = iter(loader)
        next(iterator)
    for action in (lambda: next(iterator), lambda: iter(loader), lambda: loader.set_epoch(1)):
        with pytest.raises(feedwater.FailedPrecondition, match="closed"):
            action()
    assert loader.state_dict()["position"] == 4
    assert "closed" in repr(loader)


def test_a_partial_last_batch_is_as_short_as_it_is(start, open_loader):
    daemon = start(records=43, last="partial")
    ranks = [open_loader(daemon, job="j", rank=r, world_size=2) for r in range(2)]
    sizes, seen = [], []
    for loader in ranks:
        batches = []
        for batch in loader:
            check(batch, 0, 43)
            batches.append(len(batch["image"]))
            seen += positions(batch)
        sizes.append(batches)
    assert sizes == [[4, 4, 4, 4, 4, 1], [4, 4, 4, 4, 4, 2]]
    assert sorted(seen) == list(range(43))


def test_a_rank_without_a_sample_in_the_last_step_gets_an_empty_batch(start, open_loader):
    daemon = start(records=41, last="partial")
    loader = open_loader(daemon, rank=0, world_size=2)
    *_, last = [{name: x.copy() for name, x in batch.items()} for batch in loader]
    assert last["image"].shape == (0, 3, 4, 5)
    assert last["label"].shape == (0,)


def test_padding_is_delivered_and_marked(start, open_loader):
    daemon = start(records=41, last="pad")
    loader = open_loader(daemon)
    real = [bool(x) for batch in loader for x in batch["is_real"]]
    assert real == [True] * 41 + [False] * 3
    assert loader.stats()["samples"] == 44
    assert loader.stats()["real_samples"] == 41


def test_an_epoch_without_a_step_is_empty_and_does_not_wait(daemon, open_loader):
    daemon.faults.steps_per_epoch = 0
    loader = open_loader(daemon)
    assert len(loader) == 0
    assert list(loader) == []
    assert where(loader) == (1, 0)


def test_substituted_samples_are_counted_in_the_state_and_the_statistics(daemon, open_loader):
    daemon.faults.substituted_at = {(0, 1): 2, (0, 4): 1}
    loader = open_loader(daemon)
    for step, _ in enumerate(loader):
        assert loader.state_dict()["substituted"] == {0: 0, 1: 2, 2: 2, 3: 2}.get(step, 3)
    state = loader.state_dict()
    assert loader.stats()["substituted"] == 3
    other = open_loader(daemon)
    other.load_state_dict(state)
    assert other.state_dict() == state


def test_an_epoch_with_replaced_samples_says_so_in_two_lines(daemon, open_loader, caplog):
    """The first batch and, where there were more, the sum."""
    daemon.faults.substituted_at = {(0, 1): 2, (0, 3): 1, (0, 4): 1, (1, 2): 1}
    loader = open_loader(daemon)
    for _ in range(3):
        for _ in loader:
            pass
    name, samples = loader.pipeline, loader.stats()["samples"] // 3
    first = (
        f"{name}: samples that cannot be made are replaced by others (on_bad_sample: substitute): "
        "{} in the batch of epoch {}, step {}; "
        f"`feedwater --address {loader.address} status --bad` lists them"
    )
    assert [one.getMessage() for one in caplog.records if one.name == "feedwater"] == [
        first.format(2, 0, 1),
        f"{name}: 4 of {samples} samples that were taken of epoch 0 were replaced",
        first.format(1, 1, 2),
    ]


def test_an_epoch_that_is_begun_again_has_lines_of_its_own(daemon, open_loader, caplog):
    daemon.faults.substituted_at = {(0, 1): 2, (0, 3): 1}
    loader = open_loader(daemon)
    samples = sum(len(batch["label"]) for batch in loader)
    loader.set_epoch(0)
    for _ in loader:
        pass
    lines = [one.getMessage() for one in caplog.records if one.name == "feedwater"]
    assert len(lines) == 4 and lines[:2] == lines[2:]
    assert f": 3 of {samples} samples" in lines[3]


def test_samples_that_are_skipped_are_told_as_such(caplog):
    said = Replaced()
    ready = Ready(0, 0, 0, 5, 7, 0, 4, 3, 1, SKIPPED, 0, 0)
    said.took(ready, "p", "/a b")
    said.took(ready._replace(step=8, flags=SKIPPED | LAST_IN_EPOCH), "p", "/a b")
    assert [one.getMessage() for one in caplog.records] == [
        "p: samples that cannot be made are not real in their batches (on_bad_sample: "
        "skip_with_count): 1 in the batch of epoch 5, step 7; `feedwater --address '/a b' status "
        "--bad` lists them",
        "p: 2 of 8 samples that were taken of epoch 5 were skipped",
    ]


def test_a_loader_has_no_batches_by_number(daemon, open_loader):
    """What a DataLoader of the loader asks for."""
    loader = open_loader(daemon)
    with pytest.raises(TypeError, match=r"for batch in loader.*not DataLoader\(loader\)"):
        loader[0]
    assert np.array([loader, loader]).shape == (2,)  # NumPy takes no sequence of it
    assert np.asarray(loader)[()] is loader
    next(iter(loader))
    assert loader.epoch == 0  # of the batch that was taken
    next(iter(loader))
    assert (loader.epoch, loader.batch_info.epoch) == (1, 1)


def test_statistics_count_and_time(start, open_loader):
    daemon = start(delay=0.01)
    loader = open_loader(daemon)
    for _ in loader:
        pass
    stats = loader.stats()
    assert (stats["batches"], stats["samples"], stats["reconnects"], stats["slots"]) == (
        10,
        40,
        0,
        4,
    )
    assert stats["waits"] > 0 and stats["wait_s"] > 0
    assert 0 < stats["handover_us_p50"] <= stats["handover_us_p99"]


def test_verify_asks_for_checksums_and_a_wrong_one_is_data_loss(daemon, open_loader):
    daemon.faults.wrong_crc_at = {(0, 3)}
    loader = open_loader(daemon, verify=True)
    assert daemon.requests[-1].checksum
    seen = []
    iterator = iter(loader)
    with pytest.raises(feedwater.Error, match="step 3 does not fit its checksum") as caught:
        while True:
            seen += positions(next(iterator))
    assert caught.value.code == "DATA_LOSS"
    assert where(loader) == (0, 12)
    del caught
    daemon.faults.wrong_crc_at = set()
    seen += [p for batch in iterator for p in positions(batch)]  # the same batch again, now whole
    assert seen == ALL


def test_a_wait_in_another_thread_ends_when_the_loader_is_closed(start, open_loader):
    import threading

    daemon = start()
    daemon.paused.set()
    loader = open_loader(daemon)
    caught = []

    def take():
        try:
            next(iter(loader))
        except feedwater.Error as error:
            caught.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    while not loader._lock.locked():
        pass
    loader.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(caught[0], feedwater.FailedPrecondition)


def test_a_loader_that_is_closed_while_it_reconnects_leaves_no_session(
    start, open_loader, monkeypatch
):
    """Another thread's close finds no session then, as the new one is not known yet."""
    daemon = start()
    loader = open_loader(daemon)
    next(iter(loader))
    (first,) = daemon.sessions.values()
    first.close()
    first.ended.wait()
    open_session = Session.open

    def open_and_close(*arguments):
        opened = open_session(*arguments)
        loader.close()
        return opened

    monkeypatch.setattr(stream, "Session", SimpleNamespace(open=open_and_close))
    with pytest.raises(feedwater.FailedPrecondition, match="the loader is closed"):
        list(loader)
    wait_for(lambda: not daemon.sessions)


def test_the_package_says_what_it_is():
    assert feedwater.__version__ == "0.1.0"
    project = Path(__file__).resolve().parents[3] / "client/python/pyproject.toml"
    assert f'version = "{feedwater.__version__}"' in project.read_text()
    assert all(hasattr(feedwater, name) for name in feedwater.__all__)


def test_a_loader_has_what_trainers_look_for_on_a_dataloader(daemon, open_loader):
    loader = open_loader(daemon)
    assert loader.batch_sampler.sampler is loader.sampler
    assert (len(loader.batch_sampler), loader.batch_sampler.batch_size) == (10, 4)
    assert loader.num_workers == 0 and not loader.pin_memory
    assert loader.in_order, "as a DataLoader of torch 2.6 and later has it"
    assert loader.drop_last, "the pipeline says so, though 40 records are ten batches of 4"
    assert loader.dataset.class_to_idx == {name: i for i, name in enumerate(loader.classes)}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("num_workers", "cpus"),
        ("shuffle", "sampler: {shuffle"),
        ("pin_memory", "device="),
        ("drop_last", "last: drop"),
        ("batchsize", "no argument 'batchsize': did you mean 'batch_size'?"),
        ("zzz", "no argument 'zzz': it has address, as_dict, batch_size"),
    ],
)
def test_an_argument_of_a_dataloader_says_where_it_is_given_here(daemon, open_loader, name, place):
    with pytest.raises(TypeError, match=re.escape(place)):
        open_loader(daemon, **{name: 1})


def test_an_argument_without_its_name_says_how_it_is_given(daemon):
    with pytest.raises(TypeError, match="write `batch_size=64`"):
        feedwater.Loader("numbers", 64, address=str(daemon.directory))


def test_what_a_dataloader_does_not_let_change_or_cannot_list(daemon, open_loader):
    loader = open_loader(daemon)
    with pytest.raises(AttributeError, match="batch_size"):
        loader.batch_size = 8
    assert loader.batch_size == 4
    with pytest.raises(TypeError, match="sample_id"):
        list(loader.sampler)
    with pytest.raises(TypeError, match="str"):
        loader.dataset["images"]


def test_a_folder_or_a_file_that_is_not_there_is_no_pipeline(tmp_path):
    with pytest.raises(feedwater.InvalidArgument, match=r"is a folder: .*dataset: \{"):
        feedwater.Loader(str(tmp_path))
    with pytest.raises(feedwater.NotFound, match="no pipeline file"):
        feedwater.Loader(str(tmp_path / "train"))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_pipelines_name_may_stand_for_something_else_here(
    daemon, open_loader, tmp_path, monkeypatch, kind
):
    if kind == "folder":
        (tmp_path / "numbers").mkdir()
    else:
        (tmp_path / "numbers").write_text("1 2 3\n")
    monkeypatch.chdir(tmp_path)
    assert open_loader(daemon).pipeline == "numbers"
    assert daemon.requests[-1].pipeline.name == "numbers"

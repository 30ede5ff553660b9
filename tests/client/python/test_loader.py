"""Epochs and positions: what `for`, set_epoch, state_dict and load_state_dict do, against the fake
daemon.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from reading import check, epoch_positions, positions

import feedwater

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


# --- positions ------------------------------------------------------------------------------------


def where(loader):
    state = loader.state_dict()
    return state["epoch"], state["position"]


def test_the_state_counts_exactly_the_batches_that_next_returned(daemon, open_loader):
    loader = open_loader(daemon)
    assert where(loader) == (0, 0)
    iterator = iter(loader)
    assert where(loader) == (0, 0)
    for step in range(10):
        next(iterator)
        assert where(loader) == (0, 4 * (step + 1))
    with pytest.raises(StopIteration):
        next(iterator)
    assert where(loader) == (1, 0)
    with pytest.raises(StopIteration):
        next(iterator)
    assert where(loader) == (1, 0)
    state = json.dumps(loader.state_dict())
    assert len(state) <= 1024


@pytest.mark.parametrize("taken", [0, 1, 5, 9, 10, 11, 13])
@pytest.mark.parametrize(("world", "batch"), [(1, 4), (2, 2), (4, 1), (1, 2)])
def test_a_new_loader_continues_where_the_state_was_taken_whatever_its_world(
    daemon, open_loader, taken, world, batch
):
    loader = open_loader(daemon, job="before")
    iterator, count, first = iter(loader), 0, []
    while count < taken:
        try:
            first += [(loader.epoch, p) for p in positions(next(iterator))]
            count += 1
        except StopIteration:
            iterator = iter(loader)
    state = json.loads(json.dumps(loader.state_dict()))
    loader.close()

    ranks = [
        open_loader(daemon, job="after", rank=r, world_size=world, batch_size=batch)
        for r in range(world)
    ]
    rest = []
    for rank in ranks:
        rank.load_state_dict(state)
    while not rest or rest[-1][0] < 2:
        for rank in ranks:
            for image in rank:
                check(image, rank.epoch)
                rest += [(rank.epoch, p) for p in positions(image)]
    both = [(e, p) for e, p in first + sorted(rest) if e < 2]
    assert both == [(e, p) for e in range(2) for p in ALL]


def test_a_state_of_the_epochs_end_gives_an_empty_rest_and_then_the_next_epoch(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    at_end = loader.state_dict()
    assert where(loader) == (0, 40)
    again = open_loader(daemon)
    again.load_state_dict(at_end)
    again.set_epoch(0)  # as a training loop does before every epoch
    assert list(again) == []
    assert where(again) == (1, 0)
    again.set_epoch(1)
    assert epoch_positions(again, 1) == ALL
    assert daemon.counts["seeks"] == 1


def test_loading_works_in_the_middle_of_an_epoch_and_any_number_of_times(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    rests = []
    for _ in range(3):
        rests.append(
            epoch_positions(loader) if rests else [p for b in iterator for p in positions(b)]
        )
        loader.load_state_dict(state)
    assert rests == [ALL[12:]] * 3


def test_a_break_ends_the_epoch_and_the_state_still_tells_what_was_taken(daemon, open_loader):
    loader = open_loader(daemon)
    for step, _ in enumerate(loader):
        if step == 2:
            break
    assert where(loader) == (0, 12)
    assert epoch_positions(loader, 1) == ALL
    for step, _ in enumerate(loader):  # leaves after the last batch, before its end was met
        if step == 9:
            break
    assert where(loader) == (2, 40)
    assert epoch_positions(loader, 3) == ALL


def test_set_epoch_before_every_epoch_costs_nothing(daemon, open_loader):
    loader = open_loader(daemon)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        assert epoch_positions(loader, epoch) == ALL
    assert daemon.counts["seeks"] == 0


def test_set_epoch_chooses_an_epoch_from_its_beginning(daemon, open_loader):
    loader = open_loader(daemon)
    loader.set_epoch(7)
    assert where(loader) == (7, 0)
    assert epoch_positions(loader, 7) == ALL
    loader.set_epoch(3)
    assert epoch_positions(loader, 3) == ALL
    next(iter(loader))
    loader.set_epoch(4)  # some of epoch 4 was taken: it starts over
    assert epoch_positions(loader, 4) == ALL


def test_set_epoch_keeps_the_position_of_a_loaded_state(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    other = open_loader(daemon)
    other.load_state_dict(state)
    other.set_epoch(0)
    assert epoch_positions(other, 0) == ALL[4:]


@pytest.mark.parametrize("epoch", [-1, 1 << 63, "1", 1.5, None])
def test_set_epoch_refuses_what_is_no_epoch(daemon, open_loader, epoch):
    loader = open_loader(daemon)
    with pytest.raises((feedwater.InvalidArgument, TypeError)):
        loader.set_epoch(epoch)
    assert epoch_positions(loader, 0) == ALL


def test_an_old_iterator_is_refused_when_a_new_one_was_made(daemon, open_loader):
    loader = open_loader(daemon)
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(feedwater.FailedPrecondition, match="another one was begun"):
        next(old)
    assert positions(next(new)) == [0, 1, 2, 3]
    assert loader.epoch == 1


def test_two_iterators_before_the_first_batch_are_the_same_epoch(daemon, open_loader):
    loader = open_loader(daemon)
    iter(loader)
    assert epoch_positions(loader, 0) == ALL


def test_a_state_of_something_else_is_refused_and_changes_nothing(daemon, open_loader):
    loader = open_loader(daemon, seed=7)
    state = open_loader(daemon).state_dict()
    with pytest.raises(feedwater.FailedPrecondition, match="seed"):
        loader.load_state_dict(state)
    with pytest.raises(feedwater.InvalidArgument):
        loader.load_state_dict({})
    assert epoch_positions(loader, 0) == ALL


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


def test_the_package_says_what_it_is():
    assert feedwater.__version__ == "0.1.0"
    project = Path(__file__).resolve().parents[3] / "client/python/pyproject.toml"
    assert f'version = "{feedwater.__version__}"' in project.read_text()
    assert all(hasattr(feedwater, name) for name in feedwater.__all__)


# --- what programs written for torchdata's StatefulDataLoader rely on -----------------------------


def resumed(open_loader, daemon, state, job):
    loader = open_loader(daemon, job=job)
    loader.load_state_dict(state)
    return loader


def test_a_state_taken_after_an_epoch_begins_the_next_one_whole(daemon, open_loader):
    loader = open_loader(daemon, job="first")
    for _ in loader:
        pass
    again = resumed(open_loader, daemon, loader.state_dict(), "second")
    assert epoch_positions(again, 1) == ALL
    assert epoch_positions(again, 2) == ALL


def test_a_state_taken_at_every_batch_of_a_loop_resumes_with_the_next_batch(daemon, open_loader):
    loader = open_loader(daemon, job="first")
    states = []
    for _ in loader:
        states.append(loader.state_dict())
    for k, state in enumerate(states):
        again = resumed(open_loader, daemon, state, f"job{k}")
        assert again.epoch == k // 9, "the epoch of the next batch"
        if k < 9:
            assert [p for batch in again for p in positions(batch)] == ALL[4 * (k + 1) :]
        assert epoch_positions(again, 1) == ALL, "the epoch after it is whole"
        assert epoch_positions(again, 2) == ALL
        again.close()


def test_a_resumed_loader_resumes_again_and_again_within_one_epoch(daemon, open_loader):
    """Each of many programs takes one batch, however often it is interrupted."""
    state, seen = None, []
    for k in range(10):
        loader = open_loader(daemon, job=f"job{k}")
        if state is not None:
            loader.load_state_dict(state)
            assert loader.state_dict() == state, "a state that was loaded is the state"
        iterator = iter(loader)
        assert state is None or loader.state_dict() == state, "as is that of a loop that begins"
        seen += positions(next(iterator))
        state = loader.state_dict()
        loader.close()
    assert seen == ALL


def test_loading_in_the_midst_of_a_loop_moves_the_same_loader(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    for _ in range(3):
        next(iterator)
    loader.load_state_dict(state)
    with pytest.raises(feedwater.FailedPrecondition, match="iteration is over"):
        next(iterator)
    assert [p for batch in loader for p in positions(batch)] == ALL[8:]


def test_a_states_parts_are_plain_python(daemon, open_loader):
    loader = open_loader(daemon)
    next(iter(loader))
    loader.skip(3, 4)
    state = loader.state_dict()
    assert {type(value) for value in state.values()} == {int, str, list}
    assert json.loads(json.dumps(state)) == state


def test_an_iteration_of_which_nothing_was_taken_follows_set_epoch(daemon, open_loader):
    """A DataLoader asks its sampler for the epoch's order with the first batch."""
    loader = open_loader(daemon)
    batches = iter(loader)
    loader.sampler.set_epoch(3)
    assert [at for batch in batches for at in positions(batch)] == ALL
    assert loader.epoch == 4
    batches = iter(loader)
    next(batches)
    loader.sampler.set_epoch(6)
    with pytest.raises(feedwater.FailedPrecondition, match="iteration is over"):
        next(batches)


def test_a_loader_has_what_trainers_look_for_on_a_dataloader(daemon, open_loader):
    loader = open_loader(daemon)
    assert loader.batch_sampler.sampler is loader.sampler
    assert (len(loader.batch_sampler), loader.batch_sampler.batch_size) == (10, 4)
    assert loader.num_workers == 0 and loader.collate_fn is None and not loader.pin_memory
    assert loader.in_order, "as a DataLoader of torch 2.6 and later has it"
    assert loader.drop_last, "the pipeline says so, though 40 records are ten batches of 4"
    assert loader.dataset.class_to_idx == {name: i for i, name in enumerate(loader.classes)}
    with pytest.raises(TypeError, match="gives this rank's batches itself"):
        iter(loader.batch_sampler)


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

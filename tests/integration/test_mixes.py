"""Mixes under a real daemon: what the ranks of any world get is the order of server/sampler's page,
whatever is cached where; changed files, bad records and the ledger know their source.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import subprocess
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD, ROOT
from pictures import pixels, png, write_folder

import feedwater

CLI = BUILD / "bin/feedwater"
SIZES, WEIGHTS, SEED = (7, 40), (3, 1), 11
GLOBAL_BATCH = 6
TICK_S = 0.03  # file times move in ticks of the kernel


def page() -> dict:
    """Return what the Python of the sampler's page defines."""
    text = (ROOT / "server/sampler/README.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names: dict = {}
    exec(compile(block, "server/sampler/README.md", "exec"), names)
    return names


PAGE = page()
TURNS = PAGE["schedule"](list(WEIGHTS))


def length_of(stop) -> int:
    return PAGE["mix_length"](TURNS, SIZES, stop)


def expected(epoch: int, stop="all", shuffle="full", starts=None) -> list[int]:
    """Return the record at each position of an epoch, as the page says."""
    at = PAGE["mix_order"](TURNS, SIZES, length_of(stop), SEED, epoch, shuffle, 4, starts)
    return [at(position)[0] for position in range(length_of(stop))]


def write_tables(data: Path, first: int = 0) -> None:
    """Write 7 rows of CSV in two files and 40 lines of JSON; `id` is 100 times the record's number.

    `first` is added to those of the second source.
    """
    for folder in ("small", "large"):
        (data / folder).mkdir(exist_ok=True)
    rows = [f"{100 * i},{i % 2}\n" for i in range(SIZES[0])]
    (data / "small/a.csv").write_text("id,kind\n" + "".join(rows[:3]))
    (data / "small/b.csv").write_text("id,kind\n" + "".join(rows[3:]))
    lines = [{"kind": 5, "id": 100 * (SIZES[0] + i) + first} for i in range(SIZES[1])]
    (data / "large/a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def tables(stop="all", shuffle="full", weights=WEIGHTS) -> str:
    return (
        "version: 1\n"
        "dataset:\n"
        "  mix:\n"
        f"    - {{format: csv, root: data, path: small, weight: {weights[0]}}}\n"
        f"    - {{format: jsonl, root: data, path: large, weight: {weights[1]}}}\n"
        f"  stop: {stop}\n"
        f"sampler: {{shuffle: {shuffle}, seed: {SEED}, last: partial, block_records: 4}}\n"
        f"batch: {{size: {GLOBAL_BATCH}}}\n"
        "outputs: [id, kind, dataset_id, sample_id, position, is_real]\n"
    )


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    write_tables(daemon.data)
    daemon.add_pipeline("tables", tables())
    time.sleep(TICK_S)
    daemon.start()
    return daemon


def world(daemon, size: int, pipeline="tables", state=None, **options) -> list[feedwater.Loader]:
    """Open all ranks of a job."""
    job = f"world-{next(JOBS)}"
    loaders = [
        feedwater.Loader(
            pipeline, address=daemon.address, output="numpy", as_dict=True, job=job,
            rank=rank, world_size=size, batch_size=GLOBAL_BATCH // size, **options,
        )
        for rank in range(size)
    ]  # fmt: skip
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


JOBS = itertools.count()


def close(loaders) -> None:
    for loader in loaders:
        loader.close()


def epoch_of(loaders) -> dict[int, dict[str, int]]:
    """Run the rest of an epoch on all ranks; return what was at each position."""
    seen = {}
    for batches in zip(*loaders):
        for batch in batches:
            take(batch, seen)
    return seen


def take(batch, seen) -> None:
    for k, position in enumerate(batch["position"].tolist()):
        assert position not in seen
        seen[position] = {name: batch[name][k].item() for name in batch}


def check(seen, wanted: list[int], begin: int = 0) -> None:
    """Compare with the records that were wanted at the positions from `begin` on."""
    assert sorted(seen) == list(range(begin, len(wanted)))
    for position, sample in seen.items():
        record = wanted[position]
        assert sample["sample_id"] == record, position
        assert sample["id"] == 100 * record
        assert sample["dataset_id"] == (record >= SIZES[0])
        assert sample["kind"] == (5 if record >= SIZES[0] else record % 2)
        assert sample["is_real"]


@pytest.mark.parametrize("shuffle", ["none", "full", "block"])
@pytest.mark.parametrize("stop", ["all", "first", 57])
def test_the_ranks_of_every_world_get_the_order_of_the_page(daemon, shuffle, stop):
    daemon.add_pipeline("this", tables(stop, shuffle))
    # The shards of a source are its files.
    starts = [[0, 3], [0]] if shuffle == "block" else None
    for size in (1, 2, 3):
        loaders = world(daemon, size, "this")
        assert len(loaders[0].dataset) == sum(SIZES)
        assert len(loaders[0]) == -(-length_of(stop) // GLOBAL_BATCH)
        assert sum(len(loader.sampler) for loader in loaders) == length_of(stop)
        for epoch in range(3):
            check(epoch_of(loaders), expected(epoch, stop, shuffle, starts))
        loaders[0].set_epoch(70)
        for loader in loaders[1:]:
            loader.set_epoch(70)
        check(epoch_of(loaders), expected(70, stop, shuffle, starts))
        close(loaders)


def test_a_source_is_whole_in_each_of_its_own_epochs(daemon):
    """An epoch of 57 samples has 43 of the small source and 14 of the large one."""
    daemon.add_pipeline("this", tables(57))
    loaders = world(daemon, 1, "this")
    given: list[list[int]] = [[], []]
    for _ in range(12):
        seen = epoch_of(loaders)
        for position in range(57):
            given[seen[position]["dataset_id"]].append(seen[position]["sample_id"])
            counts = [sum(s["dataset_id"] == i for s in map(seen.get, range(position + 1)))
                      for i in (0, 1)]  # fmt: skip
            for count, weight in zip(counts, WEIGHTS):
                assert abs(count - (position + 1) * weight / sum(WEIGHTS)) < 1
    close(loaders)
    for records, size in zip(given, SIZES):
        assert len(records) > 2 * size
        for begin in range(0, len(records) - size + 1, size):
            assert len(set(records[begin : begin + size])) == size


@pytest.mark.parametrize("before, after", list(itertools.permutations((1, 2, 3), 2)))
def test_an_epoch_goes_on_in_another_world(daemon, before, after):
    loaders = world(daemon, before)
    epoch_of(loaders)  # the first one
    seen: dict = {}
    iterators = [iter(loader) for loader in loaders]
    for _ in range(5):
        for iterator in iterators:
            take(next(iterator), seen)
    state = loaders[-1].state_dict()
    close(loaders)
    assert json.loads(json.dumps(state)) == state
    loaders = world(daemon, after, state=state)
    rest = epoch_of(loaders)
    assert not set(rest) & set(seen)
    check(rest | seen, expected(1))
    check(epoch_of(loaders), expected(2))
    close(loaders)


def test_a_killed_daemon_goes_on_in_the_same_place(daemon):
    loaders = world(daemon, 2, reconnect_timeout=60)
    seen: dict = {}
    iterators = [iter(loader) for loader in loaders]
    for _ in range(4):
        for iterator in iterators:
            take(next(iterator), seen)
    daemon.restart()
    for batches in zip(*iterators):
        for batch in batches:
            take(batch, seen)
    check(seen, expected(0))
    close(loaders)


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [CLI, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


def test_the_ledger_names_the_source(daemon):
    (loader,) = loaders = world(daemon, 1)
    state_of = {}
    for step, batch in enumerate(loader):
        for k in range(len(batch["id"])):
            state_of[step, k] = (batch["sample_id"][k], batch["dataset_id"][k])
    job = loader.job
    for step in (0, 7, len(loader) - 1):
        asked = run("--address", daemon.address, "ledger", job, "--batch", step, "--epoch", 0,
                    "--json")  # fmt: skip
        computed = run("ledger", "tables", "--config", daemon.config, "--batch", step, "--json")
        assert asked.returncode == computed.returncode == 0, asked.stderr + computed.stderr
        entries = json.loads(asked.stdout)["entries"]
        assert entries == json.loads(computed.stdout)["entries"]
        for entry in entries:
            assert (entry["record"], entry["dataset_id"]) == state_of[step, entry["place"]]
            assert entry["path"].startswith(
                "data/small/" if entry["dataset_id"] == 0 else "data/large/"
            )
    # A record of the small source is used many times in an epoch.
    asked = run("--address", daemon.address, "ledger", job, "--find", 3, "--epoch", 0, "--json")
    found = [(e["step"], e["place"]) for e in json.loads(asked.stdout)["entries"]]
    wanted = [at for at, (record, _) in state_of.items() if record == 3]
    assert len(wanted) > 2
    assert found == sorted(wanted)[: len(found)] and len(found) == min(16, len(wanted))
    text = run("--address", daemon.address, "ledger", job, "--batch", 0).stdout
    assert "dataset 1" in text and "data/large/a.jsonl" in text
    close(loaders)


def test_paths_are_those_of_the_files(daemon):
    loaders = world(daemon, 1)
    paths = [path for path, _ in loaders[0].dataset]
    close(loaders)
    assert len(paths) == sum(SIZES)
    assert all(os.path.isfile(path) for path in paths)
    assert {Path(path).name for path in paths[: SIZES[0]]} == {"a.csv", "b.csv"}
    assert {Path(path).name for path in paths[SIZES[0] :]} == {"a.jsonl"}


def test_changed_files_of_one_source_end_a_job_and_its_states(daemon):
    daemon.add_pipeline("tables", tables() + "cache: {kind: none}\n")
    loaders = world(daemon, 1, slots=2)
    batches = itertools.chain.from_iterable(itertools.repeat(loaders[0]))
    seen: dict = {}
    take(next(batches), seen)
    state = loaders[0].state_dict()
    time.sleep(TICK_S)
    write_tables(daemon.data, first=1)
    with pytest.raises(feedwater.FailedPrecondition, match=r"changed|bytes") as caught:
        for batch in batches:
            for record, value in zip(batch["sample_id"].tolist(), batch["id"].tolist()):
                assert value == 100 * record, "a job goes on with what it knows, or ends"
    assert str(daemon.data) in str(caught.value)
    close(loaders)
    loaders = world(daemon, 1)
    with pytest.raises(feedwater.FailedPrecondition, match="dataset"):
        loaders[0].load_state_dict(state)
    for sample in epoch_of(loaders).values():
        assert sample["id"] == 100 * sample["sample_id"] + sample["dataset_id"]
    close(loaders)


def test_a_state_of_other_weights_is_refused(daemon):
    loaders = world(daemon, 1)
    next(iter(loaders[0]))
    state = loaders[0].state_dict()
    close(loaders)
    daemon.add_pipeline("tables", tables(weights=(2, 1)))
    loaders = world(daemon, 1)
    with pytest.raises(feedwater.FailedPrecondition):
        loaders[0].load_state_dict(state)
    close(loaders)


# --- images: caches, decoders, draws


def write_tar(path: Path, numbers: range, bad: int | None = None) -> None:
    """Write pictures as a shard; one of them is cut in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            data = png(pixels(number))
            if number == bad:
                data = data[: len(data) // 2]
            for suffix, content in (("png", data), ("cls", str(number % 3).encode())):
                member = tarfile.TarInfo(f"{number:06}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def images(kind="none", policy="fail", classes="[cat, dog, owl]") -> str:
    return (
        "version: 1\n"
        "dataset:\n"
        "  mix:\n"
        "    - {format: image_folder, root: data, path: folder, weight: 2}\n"
        f"    - {{format: webdataset, root: data, path: shards, classes: {classes}, weight: 3.5}}\n"
        "sampler: {shuffle: full, seed: 3, last: partial}\n"
        "graph:\n"
        "  - decode: {in: data, out: image}\n"
        "  - random_resized_crop: {in: image, size: [8, 8]}\n"
        "batch: {size: 5}\n"
        f"on_bad_sample: {policy}\nmax_bad_fraction: 1\n"
        f"cache: {{kind: {kind}}}\n"
        "outputs: [image, label, dataset_id, sample_id, position]\n"
    )


def image_epochs(daemon, pipeline: str, epochs: int = 2) -> list[dict]:
    with feedwater.Loader(
        pipeline, address=daemon.address, output="numpy", as_dict=True, job=f"i-{next(JOBS)}"
    ) as loader:
        result = []
        for _ in range(epochs):
            batches = [{name: value.copy() for name, value in batch.items()} for batch in loader]
            result.append(
                {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
            )
        return result


def test_two_formats_of_images_give_the_same_pixels_whatever_is_kept(make_daemon):
    outputs = []
    for isolation, kind in (
        ("none", "none"), ("none", "bytes"), ("none", "coefficients"), ("none", "decoded"),
        ("process", "none"),
    ):  # fmt: skip
        daemon = make_daemon(
            config=f"cpus: 2\nmemory: 1GiB\ncache: {{ram: 64MiB}}\nisolation: {isolation}\n"
        )
        write_folder(daemon.data / "folder", 6)
        write_tar(daemon.data / "shards/a.tar", range(100, 130))
        daemon.add_pipeline("images", images(kind))
        daemon.start()
        outputs.append(image_epochs(daemon, "images", 3))
        assert daemon.stop() == 0
    first = outputs[0]
    for other in outputs[1:]:
        for ours, theirs in zip(first, other):
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name])
    # Each of the folder's pictures comes several times in an epoch, and is cropped anew.
    pictures: dict[tuple, int] = {}
    for epoch in first:
        for record, image in zip(epoch["sample_id"].tolist(), epoch["image"]):
            at = (record, image.tobytes())
            pictures[at] = pictures.get(at, 0) + 1
    of_one = [count for (record, _), count in pictures.items() if record == 3]
    assert sum(of_one) >= 6 and len(of_one) == sum(of_one)
    for epoch in first:
        labels = [r * 3 // 6 if r < 6 else (r - 6 + 100) % 3 for r in epoch["sample_id"]]
        np.testing.assert_array_equal(epoch["label"], labels)


def test_bad_records_are_named_with_their_source(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "folder", 6)
    write_tar(daemon.data / "shards/a.tar", range(100, 130), bad=117)
    daemon.add_pipeline("strict", images())
    daemon.add_pipeline("lenient", images(policy="substitute"))
    daemon.start()
    with pytest.raises(feedwater.BadSample) as caught:
        image_epochs(daemon, "strict")
    assert caught.value.record == 6 + 17
    assert caught.value.path == "data/shards/a.tar"
    (epoch,) = image_epochs(daemon, "lenient", 1)
    assert 6 + 17 not in epoch["sample_id"]
    np.testing.assert_array_equal(epoch["dataset_id"], epoch["sample_id"] >= 6)
    report = run("--address", daemon.address, "status", "--bad", "--json")
    assert "data/shards/a.tar" in report.stdout


# --- what is said of a mix


def test_validate_and_describe_say_the_shares(daemon):
    length = length_of("all")
    done = run("validate", daemon.pipelines / "tables.yaml", "--config", daemon.config, "--json")
    document = json.loads(done.stdout)
    assert document["records"] == sum(SIZES)
    assert document["positions_per_epoch"] == length
    assert document["steps_per_epoch"] == -(-length // GLOBAL_BATCH)
    turns = [TURNS[position % 4] for position in range(length)]
    assert [source["samples_per_epoch"] for source in document["mix"]] == [
        turns.count(0), turns.count(1),
    ]  # fmt: skip
    assert [source["weight"] for source in document["mix"]] == list(WEIGHTS)
    assert [source["records"] for source in document["mix"]] == list(SIZES)
    assert document["mix"][1]["name"] == "source 1 (jsonl in data/large)"
    text = run("validate", daemon.pipelines / "tables.yaml", "--config", daemon.config).stdout
    assert f"a mix, {length} samples an epoch" in text
    share = f"3 of every 4 samples, {turns.count(0)} samples an epoch"
    assert f"source 0 (csv in data/small): {share}" in text
    for arguments in (
        ("--address", daemon.address, "describe", "pipeline", "tables"),
        ("describe", "pipeline", "tables", "--config", daemon.config),
        ("describe", "dataset", "tables", "--config", daemon.config),
    ):
        described = json.loads(run(*arguments, "--json").stdout)
        assert described["mix"] == document["mix"], arguments
        assert described["positions_per_epoch"] == length
        assert "source 1 (jsonl in data/large)" in run(*arguments).stdout
    done = run("verify", "tables", "--config", daemon.config, "--json")
    assert done.returncode == 0, done.stderr


def test_commands_that_take_one_dataset_say_so(daemon, tmp_path):
    done = run("convert", "tables", tmp_path / "out", "--config", daemon.config)
    assert done.returncode == 2
    assert "this is a mix" in done.stderr and "convert each source" in done.stderr


def test_what_is_no_mix_is_refused_with_its_place(daemon, tmp_path):
    file = tmp_path / "wrong.yaml"
    for old, new, message in (
        ("weight: 1", "weight: -1", "wrong.yaml:5:56: 'weight' must be a positive number"),
        ("root: data, path: large", "root: dta, path: large", "wrong.yaml:5:"),
        ("format: jsonl", "format: jsnl", "wrong.yaml:5:16: unknown format 'jsnl'"),
        ("path: large", "path: none", "wrong.yaml:5:41: 'none' of root 'data' ("),
        ("stop: all", "stop: some", "wrong.yaml:6:9: 'stop' must be"),
        ("stop: all", "stop: 1", "source 1 (jsonl in data/large) has no sample in an epoch of 1"),
        ("format: jsonl", "fields: {id: id}, format: jsonl",
         "source 0 (csv in data/small) has 'kind'"),
    ):  # fmt: skip
        assert old in tables()
        file.write_text(tables().replace(old, new))
        done = run("validate", file, "--config", daemon.config)
        assert done.returncode == 2, done.stdout
        assert message in done.stderr
        with pytest.raises(feedwater.Error) as caught:
            feedwater.Loader(str(file), address=daemon.address)
        assert message in str(caught.value)

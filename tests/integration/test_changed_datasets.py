"""Datasets whose files change under a real daemon: what a loader gets is what the files held at
some moment after it was opened, whatever is cached where.

The formats are those of the reference, so that one that comes later fails here until dataset_kinds
has one of it. What the files hold is told by readers of a few lines each; what a JPEG holds, by a
daemon that keeps nothing and never sees a file change.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD, ROOT, DaemonProcess
from dataset_kinds import ALL_DATASETS, DATASETS, HAS_COLUMNAR
from dataset_kinds.kind import numbers
from dataset_kinds.pictures import Cifar10, ImageFolder, Photos

sys.path.insert(0, str(ROOT / "tests/testing"))

import fuse_storage

import feedwater

LOOK_S = 1.1  # a running job looks at its folders once a second
TICK_S = 0.03  # file times move in ticks of the kernel; a change within one does not show


@pytest.fixture(scope="module", autouse=True)
def photos_drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    command = [BUILD / "tools/make_photos", folder / "drawn", "--count", "64"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    paths = sorted((folder / "drawn").glob("*/*.jpg"), key=lambda path: path.stat().st_size)
    Photos.drawn = [path.read_bytes() for path in paths[:48]]
    daemon = DaemonProcess(folder / "d", "cpus: 2\nmemory: 1GiB\ncache: {seek_indexes: 0}\n")
    for number, jpeg in enumerate(Photos.drawn):
        write(daemon.data / "still", {f"all/{number:02}.jpg": jpeg})
    rest = "sampler: {last: partial}\nbatch: {size: 8}\ncache: {kind: none}\n"
    daemon.add_pipeline("still", pipeline("photos", "still", rest=rest))
    with daemon, opened(daemon, "still") as loader:
        for image, _, number in (sample for batch in loader for sample in zip(*batch)):
            Photos.pixels[Photos.scan(Photos.drawn[int(number)])] = np.asarray(image).tobytes()
    assert len(Photos.pixels) == len(set(Photos.pixels.values())) == len(Photos.drawn)


def test_every_format_is_covered():
    reference = (ROOT / "config/reference/formats.md").read_text()
    formats = {kind.format for kind in ALL_DATASETS.values()} | {"python"}  # which has no files
    known = set(re.findall(r"^## (\w+)$", reference, re.M))
    assert known == formats, "a class in tests/integration/dataset_kinds for each format"
    if not HAS_COLUMNAR:
        pytest.skip("parquet and arrow: without feedwater-columnar (scripts/setup --parquet)")


# --- how files change. Each takes the folder and the new files, of the same size if not `longer`.


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def in_place(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        with open(folder / name, "r+b") as file:
            file.write(data)
            file.truncate()


def by_rename(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / "new").write_bytes(data)
        os.replace(folder / "new", folder / name)


def in_place_with_old_times(folder: Path, files: dict[str, bytes]) -> None:
    old = {name: os.stat(folder / name) for name in files}
    in_place(folder, files)
    for name, info in old.items():
        os.utime(folder / name, ns=(info.st_atime_ns, info.st_mtime_ns))


def in_place_with_future_times(folder: Path, files: dict[str, bytes]) -> None:
    in_place(folder, files)
    for name in files:
        os.utime(folder / name, ns=(0, time.time_ns() + 10**16))


def by_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Put another folder, which was made before, in the place of the whole old one."""
    os.rename(folder, folder.with_name(f"{folder.name}.{time.monotonic_ns()}"))
    os.rename(folder.with_name(folder.name + ".new"), folder)


CHANGES = {  # how, and whether the files become longer (and shorter again)
    "in-place": (in_place, False),
    "by-rename": (by_rename, False),
    "old-times": (in_place_with_old_times, False),
    "future-times": (in_place_with_future_times, False),
    "resized": (in_place, True),
    "resized-by-rename": (by_rename, True),
    "exchanged": (None, False),
    "by-folder": (by_folder, False),
}


class Changing:
    """The files of one dataset, in one version after another."""

    def __init__(self, folder: Path, kind: str, change: str) -> None:
        self.folder = folder
        self.kind = DATASETS[kind]
        self.how, self.resizes = CHANGES[change]
        self.version = 0
        write(folder, self.kind.files(0, 0))
        self.prepare()

    def prepare(self) -> None:
        if self.how is by_folder:
            write(self.folder.with_name(self.folder.name + ".new"), self.next_files())

    def next_files(self) -> dict[str, bytes]:
        version = self.version + 1
        return self.kind.files(version, version % 2 if self.resizes else 0)

    def change(self) -> None:
        time.sleep(TICK_S)
        if self.how is not None:
            self.how(self.folder, self.next_files())
            self.version += 1
            self.prepare()
            return
        one, two = (self.folder / name for name in self.kind.pair)
        os.rename(one, self.folder / "away")
        os.rename(two, one)
        os.rename(self.folder / "away", two)

    def held(self) -> list[tuple[bytes, int]]:
        return self.kind.held(self.folder)


def samples(batch) -> list[tuple[int, bytes, int]]:
    return [
        (int(number), np.asarray(image).tobytes(), int(label[0]) if label else 0)
        for image, *label, number in zip(*batch)
    ]


def expect(seen: list, held: list, name: str) -> None:
    for number, image, label in seen:
        assert (image, label) == held[number], f"{name}: record {number} is not what its file held"


def opened(daemon, name: str) -> feedwater.Loader:
    return feedwater.Loader(name, address=daemon.address, output="numpy")


def expect_now(daemon, name: str, dataset: Changing, epochs: int = 1, decoded: str = "") -> dict:
    """A new loader gives what the files hold now, decoded in this way; return its last state."""
    held = dataset.held()
    with opened(daemon, name) as loader:
        for _ in range(epochs):
            seen = [sample for batch in loader for sample in samples(batch)]
            assert sorted(number for number, *_ in seen) == list(range(len(held))), name
            expect(seen, held, name)
        assert not decoded or decoded in jobs(daemon)[0]["decoded"], name
        return loader.state_dict()


def forever(loader):
    while True:
        yield from loader


def expect_old_or_error(batches, held: list, name: str) -> bool:
    """A running loader goes on with what it began with, or says which file is another one now."""
    try:
        for batch in itertools.islice(batches, 3 * len(held)):
            expect(samples(batch), held, name)
    except feedwater.FailedPrecondition as error:
        text = str(error)
        assert re.search(r"has changed|had \d+ when|truncated since it was indexed", text), text
        assert f"/{name}/" in text or f"'{name}' of root" in text, text
        return True
    return False


@dataclass(frozen=True)
class Way:
    """What lies between the files and the batches."""

    cache: str  # of feedwater.yaml
    kind: str  # of the pipelines
    isolation: str = "none"
    photos: str = ""  # how the daemon says that it decodes those, in a second epoch
    is_for_all: bool = False  # formats


WAYS = {
    "none": Way("ram: 0, disk: 0, seek_indexes: 0", "none", is_for_all=True),
    "memory": Way("ram: 64MiB, disk: 0", "bytes", is_for_all=True),
    "disk": Way("ram: 0, disk: 64MiB", "bytes"),
    "decoded": Way("ram: 8MiB, disk: 64MiB", "decoded"),
    "coefficients": Way("ram: 8MiB, disk: 64MiB", "coefficients", photos="coefficients"),
    "seek-indexes": Way("ram: 0, disk: 0", "none", photos="own_with_seek_index"),
    "decoders": Way("ram: 0, disk: 0", "none", "process", "own_with_seek_index"),
    "decoders-coefficients": Way("ram: 64MiB", "coefficients", "process", "coefficients"),
}


def jobs(daemon) -> list[dict]:
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"]


@pytest.mark.parametrize("way", WAYS)
def test_a_loader_gets_what_the_files_held_after_it_was_opened(make_daemon, way):
    way = WAYS[way]
    daemon = make_daemon(
        config=f"cpus: 2\nmemory: 1GiB\ncache: {{{way.cache}}}\nisolation: {way.isolation}\n"
    )
    datasets = {}
    for kind, made in DATASETS.items():
        for change in CHANGES if made.all_ways or way.is_for_all else ():
            name = f"{kind}-{change}"
            datasets[name] = Changing(daemon.data / name, kind, change)
            rest = (
                "sampler: {shuffle: full, seed: 5, last: partial}\nbatch: {size: 2}\n"
                f"on_bad_sample: substitute\ncache: {{kind: {way.kind}}}\n"
            )
            daemon.add_pipeline(name, pipeline(kind, name, rest=rest))
    daemon.start()
    for name, dataset in datasets.items():
        # Changed between two loaders; the first one has filled the caches. Its state is refused.
        decoded = way.photos if dataset.kind is Photos else ""
        state = expect_now(daemon, name, dataset, 2, decoded)
        dataset.change()
        with pytest.raises(feedwater.FailedPrecondition, match="dataset"):
            with opened(daemon, name) as loader:
                loader.load_state_dict(state)
        expect_now(daemon, name, dataset)
        # Changed while a loader runs, with a cache that is filled, or that is not.
        for count in (1, len(dataset.held())):  # in the first epoch, and after it
            held = dataset.held()
            with opened(daemon, name) as loader:
                batches = forever(loader)
                for batch in itertools.islice(batches, count):
                    expect(samples(batch), held, name)
                dataset.change()
                ended = expect_old_or_error(batches, held, name)
                # The files of a folder that was moved away are open, and as they were.
                is_held = dataset.how is by_folder or dataset.kind.is_unpacked
                assert ended or way.kind != "none" or is_held, name
                expect_now(daemon, name, dataset)
    # Changed while no daemon runs.
    assert daemon.stop() == 0
    for dataset in datasets.values():
        dataset.change()
    daemon.start()
    for name, dataset in datasets.items():
        expect_now(daemon, name, dataset)


def pipeline(kind: str, name: str, root: str = "data", rest: str = "") -> str:
    made = DATASETS[kind]
    extra = made.extra.replace("PATH", name)
    return (
        f"version: 1\n"
        f"dataset: {{format: {made.format}, root: {root}, path: {name}{extra}}}\n"
        f"{made.graph}outputs: [{made.outputs}, sample_id]\n{rest}"
    )


@pytest.mark.parametrize("kind", DATASETS)
def test_records_that_are_read_at_once_are_of_one_state(make_daemon, kind):
    """In stored order records that follow one another are one read."""
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    dataset = Changing(daemon.data / kind, kind, "by-folder")
    rest = "sampler: {shuffle: none, last: partial}\nbatch: {size: 3}\ncache: {kind: none}\n"
    daemon.add_pipeline("ordered", pipeline(kind, kind, rest=rest))
    time.sleep(TICK_S)
    daemon.start()
    held = dataset.held()
    with feedwater.Loader("ordered", address=daemon.address, output="numpy", slots=2) as loader:
        batches = forever(loader)
        first = next(batches)  # while it is held, the third batch is not begun
        time.sleep(LOOK_S)
        dataset.change()
        expect(samples(first), held, kind)
        del first
        expect_old_or_error(batches, held, kind)


def test_a_root_is_the_folder_that_its_path_leads_to_now(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    for version in (1, 2):
        write(daemon.data / f"v{version}/cifar", Cifar10.files(version, 0))
    link = daemon.data / "current"
    os.symlink("v1", link)
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("roots: {", f"roots: {{current: {link}, "))
    rest = "batch: {size: 2}\ncache: {kind: bytes}\n"
    daemon.add_pipeline("current", pipeline("cifar10", "cifar", "current", rest))
    daemon.start()
    with opened(daemon, "current") as running:
        batches = forever(running)
        expect(samples(next(batches)), Cifar10.held(daemon.data / "v1/cifar"), "v1")
        os.symlink("v2", daemon.data / "next")
        os.replace(daemon.data / "next", link)
        with opened(daemon, "current") as loader:
            for batch in loader:
                expect(samples(batch), Cifar10.held(daemon.data / "v2/cifar"), "v2")
        for batch in itertools.islice(batches, 20):
            expect(samples(batch), Cifar10.held(daemon.data / "v1/cifar"), "v1")


@pytest.mark.skipif(not fuse_storage.available(), reason="needs root and /dev/fuse")
def test_a_change_that_the_kernel_has_not_heard_of_is_seen(make_daemon):
    """As on NFS, whose attributes the kernel keeps for a while."""
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    source, mount = daemon.data / "source", daemon.data / "mount"
    datasets = {name: Changing(source / name, name, "in-place") for name in DATASETS}
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("roots: {", f"roots: {{far: {mount}, "))
    for name in DATASETS:
        rest = "batch: {size: 2}\ncache: {kind: bytes}\nsampler: {last: partial}\n"
        daemon.add_pipeline(name, pipeline(name, name, "far", rest))
    with fuse_storage.FuseStorage(source, mount, keeps=3600):
        daemon.start()
        for name, dataset in datasets.items():
            expect_now(daemon, name, dataset, epochs=2)
            dataset.change()
            expect_now(daemon, name, dataset)
        assert daemon.stop() == 0


def test_a_mere_copy_is_the_same_dataset(make_daemon):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    for kind, made in DATASETS.items():
        write(daemon.data / kind, made.files(0, 0))
        daemon.add_pipeline(kind, pipeline(kind, kind, rest="batch: {size: 2}\n"))
    daemon.start()
    for kind, made in DATASETS.items():
        folder = daemon.data / kind
        with opened(daemon, kind) as loader:
            batches = iter(loader)
            next(batches)
            state = loader.state_dict()
        subprocess.run(["cp", "-r", folder, daemon.data / "copy"], check=True)
        subprocess.run(["rm", "-r", folder], check=True)
        os.rename(daemon.data / "copy", folder)
        with opened(daemon, kind) as loader:
            loader.load_state_dict(state)
            expect(samples(next(iter(loader))), made.held(folder), kind)


class ManyPictures:
    """More files than a daemon looks into."""

    count = 3000
    looked_into = 1024  # of them, at most

    @staticmethod
    def picture(seed: int) -> bytes:
        return b"P6\n8 8\n255\n" + numbers(seed, 8, 8, 3).tobytes()

    def __init__(self, daemon, **files: bytes) -> None:
        self.folder = daemon.data / "many/all"
        write(self.folder, {self.name(i): self.picture(i) for i in range(self.count)} | files)
        rest = (
            "sampler: {shuffle: none, last: partial}\nbatch: {size: 100}\n"
            "on_bad_sample: skip_with_count\n"
        )
        daemon.add_pipeline("many", pipeline("pictures", "many", rest=rest))
        time.sleep(TICK_S)

    @staticmethod
    def name(number: int) -> str:
        return f"{number:04}.ppm"

    def overlooked(self, after: int) -> int:
        looked_into = {self.count * i // self.looked_into for i in range(self.looked_into)}
        return next(i for i in range(after, self.count) if i not in looked_into)


def test_a_file_that_changed_while_there_was_no_daemon_is_refused(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    many = ManyPictures(daemon)
    changed = many.overlooked(after=2000)
    daemon.start()
    with feedwater.Loader("many", address=daemon.address, output="numpy", slots=2) as loader:
        batches = iter(loader)
        next(batches)
        daemon.kill()
        time.sleep(TICK_S)
        in_place(many.folder, {many.name(changed): many.picture(-1 % 2**32)})
        time.sleep(TICK_S)
        daemon.start()
        with opened(daemon, "many") as other:  # it has the same digest, and has read nothing yet
            assert other.state_dict()["dataset"] == loader.state_dict()["dataset"]
            next(iter(other))
        with pytest.raises(feedwater.FailedPrecondition, match=rf"/{changed}.ppm has changed"):
            for _ in batches:
                pass


def test_a_file_that_is_removed_ends_the_job_with_its_name_and_the_cure(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    many = ManyPictures(daemon)
    daemon.start()
    with feedwater.Loader("many", address=daemon.address, output="numpy", slots=2) as loader:
        batches = iter(loader)
        next(batches)
        (many.folder / many.name(2500)).unlink()
        with pytest.raises(feedwater.Error, match=r"2500\.ppm.*\. Open a new loader") as caught:
            for _ in batches:
                pass
    assert caught.value.code in ("NOT_FOUND", "FAILED_PRECONDITION")  # its folder changed, too
    with opened(daemon, "many") as loader:
        assert len(loader.dataset) == many.count - 1


def test_an_empty_file_that_is_filled_is_no_bad_sample_for_ever(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    many = ManyPictures(daemon)
    (many.folder / many.name(7)).write_bytes(b"")
    time.sleep(TICK_S)
    daemon.start()
    with opened(daemon, "many") as loader:
        for _ in loader:
            pass
        assert loader.stats()["real_samples"] == many.count - 1
    (many.folder / many.name(7)).write_bytes(many.picture(7))
    time.sleep(TICK_S)
    with (
        opened(daemon, "many") as loader,
        pytest.raises(feedwater.FailedPrecondition, match=r"had 0 when the dataset was indexed"),
    ):
        for _ in loader:
            pass
    with opened(daemon, "many") as loader:
        for _ in loader:
            pass
        assert loader.stats()["real_samples"] == many.count


@pytest.mark.parametrize("kind", ["none", "bytes"])
def test_a_link_to_nothing_is_a_bad_sample(make_daemon, kind):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    write(daemon.data / "links", ImageFolder.files(0, 0))
    os.symlink("gone.ppm", daemon.data / "links/cat/1.ppm.ppm")
    rest = "batch: {size: 3}\non_bad_sample: skip_with_count\nmax_bad_fraction: 1\n"
    rest += f"sampler: {{last: partial}}\ncache: {{kind: {kind}}}\n"
    daemon.add_pipeline("links", pipeline("pictures", "links", rest=rest))
    daemon.start()
    with opened(daemon, "links") as loader:
        for _ in range(2):
            for _ in loader:
                pass
        assert (loader.stats()["real_samples"], loader.stats()["skipped"]) == (16, 2)

"""Datasets and ops of a user's own, for tests: processes that serve them import this module."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Optional

import numpy as np
from pictures import pixels, png

import feedwater


class Numbers:
    """Images and labels that tell their record."""

    classes = ("even", "odd")

    def __init__(self, records: int = 40, shape: tuple[int, ...] = (3, 4)) -> None:
        self.records = records
        self.base = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, record: int):
        if not 0 <= record < self.records:
            raise IndexError(f"no record {record}")
        return self.base + record, record % 2


class Part(Numbers):
    """One of several of the same length."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self.part = part


class Ragged(Numbers):
    """Boxes, as many as the record says, and a text."""

    def __getitem__(self, record: int):
        return {"boxes": np.full((record % 5, 4), record, "f4"), "text": "x" * (record % 7)}


class Random(Numbers):
    """What the common generators say."""

    def __getitem__(self, record: int):
        drawn = [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()]
        torch = sys.modules.get("torch")
        if torch is not None:
            drawn.append(float(torch.rand(())))
        return np.array(drawn)


class Lying(Numbers):
    """Has fewer records than it says."""

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, record: int):
        if record == self.records // 4:
            raise IndexError(f"list index {record} out of range")
        return super().__getitem__(record)


class Wicked(Numbers):
    """Does what its record says, once or always."""

    def __init__(self, folder: str, **wickedness: str) -> None:
        super().__init__()
        self.folder = folder
        self.wickedness = {int(key[1:]): word for key, word in wickedness.items()}  # r7="exit"

    def __getitem__(self, record: int):
        word = self.wickedness.get(record, "")
        if word.startswith("once "):
            try:
                os.close(os.open(f"{self.folder}/{record}", os.O_CREAT | os.O_EXCL))
                word = word[5:]
            except FileExistsError:
                word = ""
        if word == "raise":
            raise ValueError(f"record {record} is bad")
        if word == "exit":
            sys.exit("enough")
        if word == "interrupt":
            raise KeyboardInterrupt
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if word == "leave":
            os._exit(7)
        if word == "hang":
            time.sleep(1000)
        if word == "alarm":
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            while True:
                time.sleep(1000)
        if word == "unwatched":
            faulthandler.cancel_dump_traceback_later()
            time.sleep(1000)
        if word == "start":
            subprocess.Popen(["sleep", "1000"])
        if word == "fork" and os.fork() == 0:
            return super().__getitem__(record)
        if word == "threads":
            for _ in range(4):
                threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        if word == "large":
            return np.zeros((1 << 26, 4), np.float32), 0
        if word == "other shape":
            return np.zeros((9, 9), np.float32), 0
        if word == "nothing":
            return None
        return super().__getitem__(record)


class Pictures(Numbers):
    """Encoded pictures with their labels."""

    def __getitem__(self, record: int):
        if not 0 <= record < self.records:
            raise IndexError(record)
        return {"data": png(pixels(record)), "label": record % 2}


class Words(Numbers):
    """Bytes that are no pictures."""

    def __getitem__(self, record: int):
        return {"data": b"word %d" % record, "label": record % 2}


class Large(Numbers):
    """Counts how often each record was made."""

    def __init__(self, folder: str, size: int) -> None:
        super().__init__(shape=(size,))
        self.folder = folder

    def __getitem__(self, record: int):
        with open(f"{self.folder}/made-{record}", "a") as file:
            file.write("x")
        return super().__getitem__(record)


class Opened(Numbers):
    """Comes out of its pickle unless a file says otherwise."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        if os.path.exists(f"{self.folder}/gone"):
            raise OSError("the archive is gone")
        if os.path.exists(f"{self.folder}/slow"):
            time.sleep(1000)


class Stuck(Numbers):
    """Hangs at a record, or where it is asked for its length."""

    def __init__(self, records: int, at: Optional[int]) -> None:
        super().__init__(records)
        self.at = at

    def __len__(self) -> int:
        if self.at is None:
            time.sleep(1000)
        return self.records

    def __getitem__(self, record: int):
        if record == self.at:
            time.sleep(1000)
        return super().__getitem__(record)


class Unlisted(Numbers):
    """Cannot say how long it is."""

    def __len__(self) -> int:
        raise OSError("the disk is gone")


class Listed(Numbers):
    """Lists of numbers, longer in record 4."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __getitem__(self, record: int):
        return [record] * (self.size + (record == 4)), record


class Sluggish(Numbers):
    """Takes its time; some records are bad, with a text that is hostile to terminals."""

    def __init__(self, bad: tuple[int, ...] = (3, 21)) -> None:
        super().__init__()
        self.bad = bad

    def __getitem__(self, record: int):
        time.sleep(0.02)
        if record in self.bad:
            raise ValueError(f"record {record} is\x1b[31m bad")
        return super().__getitem__(record)


class Hasty(Numbers):
    """Crashes at record 7."""

    def __getitem__(self, record: int):
        if record == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(record)


class Unpicklable(Numbers):
    """Has a transform that no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = Transform(lambda image: image)


class Transform:
    """Wraps a function."""

    def __init__(self, function) -> None:
        self.steps = [function]


class Stream:
    """The first numbers, of which each worker gives every n-th one."""

    def __init__(self, records: int = 40, raises_at: int = -1, die: str = "") -> None:
        self.records, self.raises_at, self.die = records, raises_at, die

    def part(self):
        """Return this worker's numbers."""
        info = feedwater.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return range(first, self.records, step)

    def __iter__(self):
        for number in self.part():
            if number == self.raises_at:
                raise ValueError(f"sample {number} is bad")
            if self.die and number == self.records // 2 and not os.path.exists(self.die):
                open(self.die, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield self.image(number), number % 2

    def image(self, number: int):
        """Return what tells a number."""
        return np.full((3, 4), number, np.float32)


class Sized(Stream):
    """Says how long it is."""

    def __len__(self) -> int:
        return self.records


class Unshared(Stream):
    """Gives all numbers to each worker."""

    def part(self):
        return range(self.records)


class Rugged(Stream):
    """Its iterator goes on after an error."""

    def __iter__(self):
        return Rugged.Numbers(self)

    class Numbers:
        """The iterator."""

        def __init__(self, stream) -> None:
            self.stream, self.numbers = stream, iter(stream.part())

        def __iter__(self):
            return self

        def __next__(self):
            number = next(self.numbers)
            if number == self.stream.raises_at:
                raise ValueError(f"sample {number} is bad")
            return self.stream.image(number), number % 2


class OnceBad(Stream):
    """Sample 13 cannot be made in epoch 0."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        self.raises_at = 13 if self.epoch == 0 else -1
        return iter(Rugged.Numbers(self))


class Slow(Stream):
    """Takes its time for each sample, or for one; in all longer than one sample may."""

    def __init__(self, records: int = 40, pause: float = 0.05, at: int = -1) -> None:
        super().__init__(records)
        self.pause, self.at = pause, at

    def __iter__(self):
        for number, sample in enumerate(super().__iter__()):
            if self.at in (-1, number):
                time.sleep(self.pause)
            yield sample


class Told(Slow):
    """Writes a letter for each sample that it makes after the look that is taken at it."""

    def __init__(self, file: str) -> None:
        super().__init__(4000)
        self.file = file

    def __iter__(self):
        for number, sample in enumerate(super().__iter__()):
            if number > 3:
                with open(self.file, "a") as file:
                    file.write("x")
            yield sample


class Queue(Stream):
    """Gives what nobody has given yet, in whatever process."""

    def __init__(self, folder: str) -> None:
        self.file = f"{folder}/given"

    def __iter__(self):
        while True:
            with open(self.file, "a") as file:
                number = file.tell()
                file.write("x")
            yield self.image(number), number % 2


class LateTorch(Stream):
    """Imports torch in its iteration, and asks it for its part and for what is random."""

    def __iter__(self):
        import torch
        import torch.utils.data

        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.records, step):
            yield np.array([number, float(torch.rand(()))])


class SlowlyOpened(Stream):
    """Takes its time to come out of its pickle, except in the first process."""

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        time.sleep(0.5)


class Doomed(Stream):
    """Ends its process in worker 1, once more than a look is taken."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        for sample in super().__iter__():
            if feedwater.get_worker_info().id == 1 and self.epoch != 0:
                os._exit(3)
            yield sample


def torch_stream():
    """Return an iterable dataset of torch, which asks torch for its part."""
    from torch_streams import TorchStream

    return TorchStream()


class Drawn(Stream):
    """What the common generators say, the epoch, and how often this copy was iterated over."""

    epoch, begun = -1, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        self.begun += 1
        memory = np.zeros(5)  # which is used again
        for number in self.part():
            memory[:] = number, random.random(), np.random.rand(), self.epoch, self.begun
            yield memory


def double(image):
    """Return an image of twice the values, in place."""
    image *= 2
    return image


def brighten(image, by: int):
    """Return an image of larger values."""
    return image + np.float32(by)


def two(image, label):
    """Return two values of two."""
    return image[:, ::-1], np.int64(label + 1)


def jitter(image, rng=None):
    """Add what the generator says."""
    noise = 0 if rng is None else rng.integers(0, 1000)
    return image.astype(np.float32) + np.float32(noise) + np.float32(random.random())


def needs_rng(image, rng):
    """Return a number of the generator."""
    return image + np.uint8(rng.integers(0, 9) >= 0)


def pair(image):
    """Return two values."""
    return image, image


def any_keywords(image, **others):
    """Tell whether there is a generator."""
    return image + np.uint8(len(others))


def forgetful(image):
    """Return nothing."""
    image += 1


def shift(image):
    """Change an image in place, by what the common generator says."""
    image += 1
    image += np.float32(random.random() < 2)
    return image


def invert(image):
    """Return the negative of an image, or of a batch of them."""
    return 255 - image


def mean(image):
    """Return the mean colour."""
    return image.astype(np.float32).mean(axis=(0, 1))


def plus(values):
    """Add one."""
    return values + np.float32(1)


DARK = 60


def picky(image):
    """Refuse images whose first pixel is dark."""
    if image[0, 0, 0] < DARK:
        raise RuntimeError("too dark")
    return image


def fussy(image):
    """Refuse everything."""
    raise RuntimeError("not this one")

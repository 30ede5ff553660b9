"""make_photos makes the same set for the same options and leaves finished or foreign files alone.

Called by ctest as: make_photos_test.py MAKE_PHOTOS
"""

import collections
import hashlib
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MAKE_PHOTOS = sys.argv.pop(1)


def make(folder, *options):
    return subprocess.run([MAKE_PHOTOS, folder, *options], capture_output=True, text=True)


def contents(folder):
    paths = sorted(path for path in Path(folder).rglob("photo_*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def header(data):
    """Width, height and the sampling factors of a baseline JPEG."""
    at = 2
    while data[at + 1] != 0xC0:
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    height, width, components = struct.unpack(">HHB", data[at + 5 : at + 10])
    return width, height, tuple(data[at + 11 + 3 * i] for i in range(components))


class MakePhotos(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "set"

    def test_the_same_options_give_the_same_files_on_any_number_of_threads(self):
        self.assertEqual(
            make(self.folder, "--count", "30", "--classes", "7", "--jobs", "1").returncode, 0
        )
        other = self.folder.with_name("other")
        self.assertEqual(make(other, "--count", "30", "--classes", "7").returncode, 0)
        self.assertEqual(contents(self.folder), contents(other))
        self.assertEqual(len(contents(self.folder)), 30)
        self.assertEqual(len(set(contents(self.folder).values())), 30)
        self.assertEqual(len(list(self.folder.glob("class_*"))), 7)

    def test_a_finished_set_is_left_alone_and_another_one_replaced(self):
        make(self.folder, "--count", "6", "--classes", "3")
        photo = next(self.folder.rglob("photo_*"))
        before = photo.stat().st_mtime_ns
        again = make(self.folder, "--count", "6", "--classes", "3")
        self.assertEqual((again.returncode, photo.stat().st_mtime_ns), (0, before))
        self.assertIn("already", again.stderr)
        first = contents(self.folder)
        self.assertEqual(
            make(self.folder, "--count", "4", "--classes", "2", "--seed", "2").returncode, 0
        )
        self.assertEqual(len(contents(self.folder)), 4)
        self.assertFalse(set(first.values()) & set(contents(self.folder).values()))

    def test_an_unfinished_set_is_made_again(self):
        make(self.folder, "--count", "6", "--classes", "3")
        wanted = contents(self.folder)
        marker = self.folder / ".make_photos.json"
        marker.write_text(marker.read_text().replace("complete", "unfinished"))
        next(self.folder.rglob("photo_*")).unlink()
        self.assertEqual(make(self.folder, "--count", "6", "--classes", "3").returncode, 0)
        self.assertEqual(contents(self.folder), wanted)

    def test_a_folder_with_something_else_in_it_is_refused(self):
        self.folder.mkdir()
        (self.folder / "thesis.txt").write_text("years of work")
        refused = make(self.folder, "--count", "2")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("thesis.txt", refused.stderr)
        self.assertEqual(os.listdir(self.folder), ["thesis.txt"])

    def test_a_strangers_file_in_a_class_folder_survives(self):
        make(self.folder, "--count", "2", "--classes", "1")
        stranger = self.folder / "class_00" / "own.jpg"
        stranger.write_bytes(b"x")
        self.assertEqual(make(self.folder, "--count", "3", "--classes", "1").returncode, 1)
        self.assertTrue(stranger.exists())

    def test_sizes_and_samplings_are_mixed_as_in_real_collections(self):
        make(self.folder, "--count", "200", "--classes", "4")
        samplings, upright, pixels, total = collections.Counter(), 0, 0, 0
        for path in self.folder.rglob("photo_*.jpg"):
            width, height, sampling = header(path.read_bytes())
            samplings[sampling] += 1
            upright += height > width
            pixels += width * height
            total += path.stat().st_size
        self.assertGreater(samplings[(0x11, 0x11, 0x11)], 120)
        self.assertGreater(samplings[(0x22, 0x11, 0x11)], 20)
        self.assertTrue(20 < upright < 90, upright)
        self.assertTrue(3.5 < 8 * total / pixels < 5.5, 8 * total / pixels)

    def test_mixed_holds_png_files(self):
        make(self.folder, "--count", "20", "--format", "mixed")
        signatures = collections.Counter(
            path.read_bytes()[:4] for path in self.folder.rglob("photo_*.png")
        )
        self.assertEqual(signatures, {b"\x89PNG": 2})

    def test_wrong_options_exit_with_2(self):
        for options in (
            ["--count", "0"],
            ["--format", "gif"],
            ["--jobs", "none"],
            ["--nonsense"],
            ["--seed", "-1"],
        ):
            self.assertEqual(make(self.folder, *options).returncode, 2, options)


if __name__ == "__main__":
    unittest.main()

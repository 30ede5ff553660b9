"""feedwater preview: the sheet shows the very pixels that a trainer gets."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from command_line import environment, find, read_bmp, run
from pictures import center, pixels, png, write_folder

import feedwater

CENTER = "  - decode: {in: data, out: image}\n  - center_crop: {size: 8}\n"
RANDOM = (
    "  - decode: {in: data, out: image}\n"
    "  - random_resized_crop: {size: [16, 16]}\n"
    "  - random_horizontal_flip: {}\n"
)
RED = (200, 52, 60)


def grown(picture: np.ndarray, cell: int) -> np.ndarray:
    """Return a small picture as the sheet shows it: every pixel a square of a whole size."""
    factor = cell // max(picture.shape[:2])
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


@pytest.mark.parametrize("normalize", [
    "",
    "  - normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}\n",
    "  - normalize: {mean: [100, 110, 120], std: [50, 60, 70], layout: HWC}\n",
    "  - normalize: {mean: [128], std: [64], dtype: float16}\n",
    "  - normalize: {mean: [0], std: [255], dtype: float32}\n  - layout: {layout: HWC}\n",
    "  - cast: {dtype: float32}\n  - layout: {layout: CHW}\n",
])  # fmt: skip
def test_the_pixels_come_back_whatever_normalize_and_layout_did_to_them(project, normalize):
    project.pictures("pictures", 5)
    project.pipeline("exact", CENTER + normalize)
    sheet = project.folder / "sheet.bmp"
    result = run("preview", "exact", "--config", project.config, "-o", sheet, "--draws", 2)
    assert result.status == 0, result.err
    shown = read_bmp(sheet)
    for number in range(5):
        tolerance = 1 if "float16" in normalize else 0
        places = find(grown(center(number), 192), shown, tolerance)
        assert len(places) >= 2, f"record {number} is not shown in both epochs"


def test_the_originals_are_shown_whole(project):
    project.pictures("pictures", 4)
    project.pipeline("exact", CENTER)
    sheet = project.folder / "sheet.bmp"
    run("preview", "exact", "--config", project.config, "-o", sheet, "--samples", 4)
    shown = read_bmp(sheet)
    for number in range(4):
        assert find(grown(pixels(number), 192), shown), number


def test_a_sheet_is_the_same_every_time_and_another_with_another_seed_or_epoch(project):
    project.pictures("pictures", 12)
    project.pipeline("random", RANDOM, sampler="{shuffle: full, seed: 3}")

    def sheet(*options):
        path = project.folder / "sheet.png"
        result = run("preview", "random", "--config", project.config, "-o", path, *options)
        assert result.status == 0, result.err
        return path.read_bytes()

    first = sheet()
    assert sheet() == first
    assert sheet("--seed", 3) == first
    assert sheet("--seed", 4) != first
    assert sheet("--epoch", 1) != first


def test_the_sheet_shows_what_the_daemon_delivers(project, make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 12)
    path = project.pipeline(
        "random", RANDOM, sampler="{shuffle: full, seed: 3}", outputs="[image, sample_id]",
        batch="{size: 4}",
    )  # fmt: skip
    daemon.add_pipeline("random", path.read_text())
    daemon.start()
    sheet = project.folder / "sheet.bmp"
    result = run("preview", "random", "--config", daemon.config, "-o", sheet, "--samples", 12,
                 "--draws", 2, "--epoch", 1)  # fmt: skip
    assert result.status == 0, result.err
    shown = read_bmp(sheet)
    with feedwater.Loader("random", address=daemon.address, output="numpy") as loader:
        for epoch in (1, 2):
            loader.sampler.set_epoch(epoch)
            for images, records in loader:
                for image, record in zip(images, records):
                    assert find(grown(np.asarray(image), 192), shown), (epoch, int(record))


def test_two_views_stand_side_by_side_and_field_chooses_among_them(project):
    project.pictures("pictures", 3)
    graph = (
        "  - decode: {in: data, out: image}\n"
        "  - random_crop: {in: image, out: view_a, size: 8}\n"
        "  - random_crop: {in: image, out: view_b, size: 8}\n"
    )
    project.pipeline("views", graph, outputs="[view_a, view_b, label]")

    def document(*options):
        sheet = project.folder / "sheet.png"
        result = run(
            "preview", "views", "--config", project.config, "-o", sheet, "--json", *options
        )
        assert result.status == 0, result.out
        return result.document

    both, one = document(), document("--field", "view_b")
    assert both["fields"] == ["view_a", "view_b"]
    assert one["fields"] == ["view_b"]
    assert one["width"] < both["width"]
    refused = run("preview", "views", "--config", project.config, "-o", "x.png", "--field", "view")
    assert refused.status == 2
    assert "view_a, view_b" in refused.err


@pytest.mark.parametrize("op", ["mixup", "cutmix"])
def test_batch_ops_mix_the_rows(project, op):
    project.pictures("pictures", 6)
    batch = f"{{size: 4, graph: [{{{op}: {{in: [image, label], alpha: 1.0}}}}]}}"
    project.pipeline("mixed", CENTER, batch=batch)
    project.pipeline("plain", CENTER)
    sheets = {}
    for name in ("mixed", "plain"):
        path = project.folder / f"{name}.bmp"
        result = run("preview", name, "--config", project.config, "-o", path, "--draws", 1)
        assert result.status == 0, result.err
        sheets[name] = read_bmp(path)
    found = {
        name: sum(bool(find(grown(center(number), 192), sheet)) for number in range(6))
        for name, sheet in sheets.items()
    }
    assert found["plain"] == 6
    assert found["mixed"] < 6


def test_grey_pictures_are_shown(project):
    digits = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (10, 28, 28), dtype=np.uint8)
    folder = project.data / "mnist"
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, 10, 28, 28) + digits.tobytes()
    )
    (folder / "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">II", 0x801, 10) + bytes(range(10))
    )
    project.pipeline(
        "digits", "  - normalize: {mean: [33], std: [78]}\n",
        dataset="{format: mnist, root: data, path: mnist}",
    )  # fmt: skip
    sheet = project.folder / "sheet.bmp"
    result = run("preview", "digits", "--config", project.config, "-o", sheet, "--samples", 10)
    assert result.status == 0, result.err
    shown = read_bmp(sheet)
    for digit in digits:
        picture = np.repeat(digit[:, :, None], 3, axis=2)
        assert len(find(grown(picture, 192), shown)) == 5  # the original and four epochs


def test_a_bad_record_is_a_red_cell_and_no_failure(project):
    project.pictures("pictures", 4, bad=(2,))
    project.pipeline("some", CENTER)
    sheet = project.folder / "sheet.bmp"
    result = run("preview", "some", "--config", project.config, "-o", sheet, "--json")
    assert result.status == 0
    problems = {row["record"]: row["problems"] for row in result.document["samples"]}
    assert [record for record, texts in problems.items() if texts] == [2]
    assert len(problems[2]) == 5  # the original and four epochs
    red = (read_bmp(sheet) == RED).all(axis=2)
    assert red.sum() > 5 * 4 * 180  # at least the frames
    text = run("preview", "some", "--config", project.config, "-o", sheet)
    assert "1 bad, shown in red\n  record 2 (pictures/" in text.out


@pytest.mark.parametrize(("name", "magic"), [
    ("a.png", b"\x89PNG"), ("a.jpg", b"\xff\xd8"), ("a.JPEG", b"\xff\xd8"), ("a.webp", b"RIFF"),
])  # fmt: skip
def test_the_name_says_what_is_written(project, name, magic):
    project.pictures("pictures", 2)
    project.pipeline("some", CENTER)
    result = run("preview", "some", "--config", project.config, "-o", project.folder / name)
    assert result.status == 0, result.err
    assert (project.folder / name).read_bytes().startswith(magic)


def test_wrong_input_is_status_2_and_leaves_no_file(project):
    project.pictures("pictures", 2)
    project.pipeline("some", CENTER)
    project.pipeline("blind", CENTER, outputs="[label]")
    project.pipeline("gone", CENTER, dataset="{format: image_folder, root: data, path: gone}")
    for arguments, word in [
        (["some", "-o", "sheet.gif"], ".png"),
        (["some", "-o", "no/such/folder/sheet.png"], "mkdir -p no/such/folder"),
        (["some", "-o", "."], ".png"),
        (["some"], "--output"),
        (["some", "-o", "sheet.png", "--samples", "0"], "--samples"),
        (["blind", "-o", "sheet.png"], "none of its outputs is an image"),
        (["gone", "-o", "sheet.png"], "gone"),
    ]:
        result = run("preview", *arguments, "--config", project.config, cwd=project.folder)
        assert result.status == 2, result
        assert word in result.err, (word, result.err)
    assert not list(project.folder.glob("sheet*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_told_before_the_work(project):
    project.pictures("pictures", 2)
    project.pipeline("some", CENTER)
    locked = project.folder / "locked"
    locked.mkdir(mode=0o500)
    result = run("preview", "some", "--config", project.config, "-o", locked / "sheet.png")
    assert result.status == 1
    assert "name a file in a folder of your own" in result.err


def test_dev_full_is_an_error_and_not_half_a_sheet(project):
    project.pictures("pictures", 2)
    project.pipeline("some", CENTER)
    link = project.folder / "sheet.png"
    link.symlink_to("/dev/full")
    result = run("preview", "some", "--config", project.config, "-o", link)
    assert result.status == 1
    assert "No space left" in result.err


def test_a_sheet_too_wide_for_a_webp_says_what_to_do(project):
    project.pictures("pictures", 2)
    project.pipeline("some", CENTER)
    arguments = ("preview", "some", "--config", project.config, "--draws", 50, "--cell", 320)
    refused = run(*arguments, "-o", project.folder / "sheet.webp")
    assert refused.status == 2
    assert "take .png, or fewer samples" in refused.err
    assert run(*arguments, "-o", project.folder / "sheet.png").status == 0


def test_many_rows_stand_beside_each_other(project):
    project.pictures("pictures", 60)
    project.pipeline("some", CENTER)
    arguments = ("preview", "some", "--config", project.config, "--samples", 60, "--draws", 1)
    sheet = project.folder / "sheet.bmp"
    document = run(*arguments, "-o", sheet, "--json").document
    assert document["height"] <= 2 * document["width"] + 400
    shown = read_bmp(sheet)
    for number in range(60):
        assert find(grown(center(number), 192), shown), f"record {number} is not on the sheet"


def test_names_in_any_script_are_written(project):
    """What is written differs by name: no two names become the same row of question marks."""
    sheets = []
    for name in ("чайка", "вьюга", "θύελλα"):
        pictures = project.data / "pictures"
        shutil.rmtree(pictures, ignore_errors=True)
        (pictures / name).mkdir(parents=True)
        (pictures / name / "1.png").write_bytes(png(pixels(0)))
        project.pipeline("some", CENTER)
        sheet = project.folder / "sheet.bmp"
        arguments = ("preview", "some", "--config", project.config, "--samples", 1, "--draws", 1)
        assert run(*arguments, "-o", sheet).status == 0
        sheets.append(read_bmp(sheet))
    below = slice(sheets[0].shape[0] - 60, None)  # the picture: there are captions alone
    for one, other in itertools.combinations(sheets, 2):
        assert (one[below] != other[below]).any()


def test_file_names_in_any_script_are_written(project):
    """As class names are: each original has the name of its file."""
    sheets = []
    for name in ("чайка.png", "вьюга.png", "θύρσα.png"):
        pictures = project.data / "pictures"
        shutil.rmtree(pictures, ignore_errors=True)
        (pictures / "cat").mkdir(parents=True)
        (pictures / "cat" / name).write_bytes(png(pixels(0)))
        project.pipeline("some", CENTER)
        sheet = project.folder / "sheet.bmp"
        arguments = ("preview", "some", "--config", project.config, "--samples", 1, "--draws", 1)
        done = run(*arguments, "-o", sheet, "--json")
        assert done.document["samples"][0]["path"] == f"pictures/cat/{name}"
        sheets.append(read_bmp(sheet))
    for one, other in itertools.combinations(sheets, 2):
        assert one.shape == other.shape and (one != other).any()


def turned_png(image: np.ndarray) -> bytes:
    """Return a picture that lies on its side, and says so in its EXIF data (orientation 6)."""
    exif = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x112, 3, 1, 6, 0, 0)
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif
    chunk += struct.pack(">I", zlib.crc32(b"eXIf" + exif))
    whole = png(np.ascontiguousarray(np.rot90(image)))
    ihdr_end = 8 + 25
    return whole[:ihdr_end] + chunk + whole[ihdr_end:]


def test_an_original_that_exif_data_turns_is_shown_upright_with_a_footnote(project):
    upright = np.random.Generator(np.random.PCG64(7)).integers(0, 256, (16, 16, 3), np.uint8)
    (project.data / "pictures/cat").mkdir(parents=True)
    project.pipeline("some", CENTER.replace("out: image", "out: image, orientation: exif"))
    sheet = project.folder / "sheet.bmp"

    def shown(file: bytes) -> tuple[np.ndarray, np.ndarray]:
        (project.data / "pictures/cat/1.png").write_bytes(file)
        arguments = ("preview", "some", "--config", project.config, "--samples", 1, "--draws", 1)
        assert run(*arguments, "-o", sheet).status == 0
        whole = read_bmp(sheet)
        ((row, column),) = find(grown(upright, 192), whole)
        return whole, whole[row + 192 : row + 260, column : column + 192]

    plain, plain_text = shown(png(upright))
    turned, turned_text = shown(turned_png(upright))
    assert turned.shape[0] > plain.shape[0], "a note tells what decode does about it"
    height = min(len(plain_text), len(turned_text))
    assert (plain_text[:height] != turned_text[:height]).any(), "the footnote says `turned`"


def test_without_any_font_it_says_which_to_install(project):
    project.pictures("pictures", 1)
    project.pipeline("some", CENTER)
    fonts = project.folder / "fonts.conf"
    fonts.write_text('<?xml version="1.0"?><fontconfig></fontconfig>')
    done = run(
        "preview", "some", "--config", project.config, "-o", project.folder / "sheet.png",
        env=environment(FONTCONFIG_FILE=str(fonts)),
    )  # fmt: skip
    assert done.status == 1
    assert "no font is installed" in done.err and "fonts-dejavu-core" in done.err

"""feedwater preview: boxes, masks and keypoints over images; spectrograms, sound, text, views."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile

import numpy as np
import pytest
from command_line import PROGRAM, environment, find, read_bmp, run
from pictures import png

GREY = 128
SIDE = 96  # half of a cell: each pixel becomes four
CLASS_0, CLASS_3, FRAME = (228, 38, 52), (255, 170, 20), (206, 210, 216)
DARK, BRIGHT = (68, 1, 84), (253, 231, 37)  # viridis' ends


def grey(side: int = SIDE) -> bytes:
    """Return a grey picture."""
    return png(np.full((side, side, 3), GREY, np.uint8))


def npy(array: np.ndarray) -> bytes:
    """Return an array as the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write_coco(project, boxes: list[list[int]], name: str = "cat") -> None:
    """Write one picture with boxes of one class, each left, top, width and height."""
    folder = project.data / "coco"
    folder.mkdir()
    (folder / "0.png").write_bytes(grey())
    (folder / "boxes.json").write_text(
        json.dumps({
            "images": [{"id": 7, "file_name": "0.png", "width": SIDE, "height": SIDE}],
            "categories": [{"id": 1, "name": name}],
            "annotations": [
                {"id": i, "image_id": 7, "category_id": 1, "bbox": box}
                for i, box in enumerate(boxes)
            ],
        })
    )  # fmt: skip


COCO = "{format: coco, root: data, path: coco, annotations: coco/boxes.json, invalid_boxes: keep}"


def rows_of(array: np.ndarray) -> list[int]:
    """Return the shape of a field whose rows, and of a mask also its columns, may differ."""
    is_mask = array.ndim == 2 and array.dtype == np.uint8
    return [-1, -1] if is_mask else [-1, *array.shape[1:]]


def write_tar(project, **members: np.ndarray) -> str:
    """Write one grey picture with arrays beside it; return its `dataset:`."""
    folder = project.data / "tar"
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "0.tar", "w") as tar:
        for name, data in [("data.png", grey())] + [
            (f"{name}.npy", npy(array)) for name, array in members.items()
        ]:
            info = tarfile.TarInfo(f"0.{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    fields = "".join(
        f", {name}: {{from: {name}.npy, dtype: {array.dtype}, shape: {rows_of(array)}}}"
        for name, array in members.items()
    )
    return f"{{format: webdataset, root: data, path: tar, fields: {{data: data.png{fields}}}}}"


def write_arrays(project, **arrays: np.ndarray) -> str:
    """Write arrays whose first axis are the records; return their `dataset:`."""
    folder = project.data / "arrays"
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    fields = ", ".join(f"{name}: {name}.npy" for name in arrays)
    return f"{{format: npy, root: data, path: arrays, fields: {{{fields}}}}}"


def preview(project, name: str, *options) -> tuple[np.ndarray, dict]:
    """Return the sheet's pixels and what the command says of it; one epoch of each record."""
    sheet = project.folder / "sheet.bmp"
    result = run("preview", name, "--config", project.config, "-o", sheet, "--draws", 1, "--json",
                 *options)  # fmt: skip
    assert result.status == 0, result.out
    assert "\x1b" not in result.out + result.err
    return read_bmp(sheet), result.document


def cells(sheet: np.ndarray, shown: dict) -> list[np.ndarray]:
    """Return the pictures of the first row, the original first."""
    frames = (sheet == FRAME).all(axis=2).sum(axis=1)
    top = int(np.argmax(frames > 180))  # the upper edge of the first row's cells
    gap, apart, margin, side = 14, 30, 24, 192
    lefts = [margin] + [
        margin + side + apart + i * (side + gap) for i in range(len(shown["fields"]))
    ]
    return [sheet[top : top + side, left : left + side] for left in lefts]


def extent(picture: np.ndarray, color: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Return the first and last column and row that have a colour."""
    rows, columns = np.nonzero((picture == color).all(axis=2))
    assert rows.size, f"nothing is {color}"
    return columns.min(), columns.max(), rows.min(), rows.max()


def near(picture: np.ndarray, color) -> np.ndarray:
    """Return where a picture has a colour, give or take rounding."""
    return np.abs(picture.astype(int) - np.asarray(color)).max(axis=2) <= 2


@pytest.mark.parametrize("flip", [0, 1])
def test_boxes_are_drawn_where_the_op_has_moved_them_in_the_colour_of_their_class(project, flip):
    write_coco(project, [[12, 24, 24, 48]])
    graph = (
        "  - decode: {in: data, out: image}\n"
        f"  - center_crop: {{in: [image, boxes, labels], size: {SIDE}}}\n"
        f"  - random_horizontal_flip: {{in: [image, boxes, labels], p: {flip}}}\n"
        "  - normalize: {in: image, mean: [123], std: [58]}\n"
    )
    project.pipeline("boxes", graph, dataset=COCO, outputs="[image, boxes, labels]")
    sheet, shown = preview(project, "boxes")
    assert shown["fields"] == ["image"]
    assert shown["samples"][0]["captions"] == [["1 box: 1 cat"]]
    original, drawn = cells(sheet, shown)
    left, right = (60, 84) if flip else (12, 36)
    for picture, (begin, end) in ((original, (12, 36)), (drawn, (left, right))):
        first, last, top, bottom = extent(picture, CLASS_0)
        assert abs(first - 2 * begin) <= 1 and abs(last - 2 * end) <= 1
        assert abs(bottom - 2 * 72) <= 1 and top < 2 * 24  # the name stands above it
        middle = picture[96, begin + end]
        assert abs(int(middle[0]) - GREY) <= 1


def test_a_view_has_its_own_boxes_alone(project):
    write_coco(project, [[12, 24, 24, 48]])
    views = "".join(
        f"  - random_horizontal_flip: {{in: [image, boxes], out: [view_{v}, boxes_{v}], p: {p}}}\n"
        for v, p in (("a", 0), ("b", 1))
    )
    graph = "  - decode: {in: data, out: image}\n  - center_crop: {in: [image, boxes], size: 96}\n"
    project.pipeline(
        "views", graph + views, dataset=COCO, outputs="[view_a, view_b, boxes_a, boxes_b]"
    )
    sheet, shown = preview(project, "views")
    assert shown["fields"] == ["view_a", "view_b"]
    _, first, second = cells(sheet, shown)
    assert extent(first, CLASS_0)[1] < 96 < extent(second, CLASS_0)[0]


def test_hostile_boxes_are_counted_in_words_and_the_sheet_stays_whole(project):
    boxes = np.tile(np.array([10, 10, 50, 50], np.float32), (10_000, 1))
    boxes[0] = np.nan
    boxes[1] = [-np.inf, 0, np.inf, 9]
    boxes[2] = [200, 200, 300, 300]
    boxes[3] = [50, 50, 40, 40]
    boxes[4] = [-1e30, -1e30, 1e30, 1e30]
    dataset = write_tar(project, boxes=boxes, labels=np.full(10_000, -(2**63), np.int64))
    project.pipeline(
        "hostile", "  - decode: {in: data, out: image}\n  - center_crop: {in: image, size: 96}\n",
        dataset=dataset,
        outputs="[image, {boxes: {max_rows: 20000}}, {labels: {max_rows: 20000}}]",
    )  # fmt: skip
    sheet, shown = preview(project, "hostile")
    assert sheet.shape[0] < 700
    (caption,) = shown["samples"][0]["captions"]
    assert caption[0].startswith("10000 boxes: 10000 -")
    for words in ("1 outside", "1 without area", "2 not finite", "not drawn"):
        assert words in caption[0]


def test_a_class_name_with_escape_codes_reaches_no_terminal(project):
    write_coco(project, [[0, 0, 50, 50]], name="\x1b[31mred\x07")
    graph = (
        "  - decode: {in: data, out: image}\n"
        "  - center_crop: {in: [image, boxes, labels], size: 96}\n"
    )
    project.pipeline("boxes", graph, dataset=COCO, outputs="[image, boxes, labels]")
    _, shown = preview(project, "boxes")
    assert shown["samples"][0]["captions"] == [["1 box: 1 \\x1b[31mred\\x07"]]


@pytest.mark.parametrize("flip", [0, 1])
def test_masks_are_translucent_over_their_image_with_an_edge(project, flip):
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[:, :24] = 3
    mask[:8] = 255
    dataset = write_tar(project, mask=mask)
    graph = (
        "  - decode: {in: data, out: image}\n"
        f"  - center_crop: {{in: [image, mask], size: {SIDE}}}\n"
        f"  - random_horizontal_flip: {{in: [image, mask], p: {flip}}}\n"
    )
    project.pipeline("mask", graph, dataset=dataset, outputs="[image, mask]")
    sheet, shown = preview(project, "mask")
    assert shown["fields"] == ["image"]
    assert shown["samples"][0]["captions"] == [["mask: 3, 255"]]
    drawn = cells(sheet, shown)[1]
    half = near(drawn, [(GREY + channel) / 2 for channel in CLASS_3])
    columns = np.nonzero(half.any(axis=0))[0]
    assert (columns.min(), columns.max()) == ((145, 190) if flip else (1, 46))
    assert half.sum() > 46 * 150
    edge = near(drawn, CLASS_3)
    assert edge[100, 144 if flip else 47] and not edge[100, 150 if flip else 40]
    assert near(drawn, [(GREY + 255) / 2] * 3)[4, 90]


def test_a_mask_of_one_plane_is_drawn_over_its_image(project):
    """[1,H,W], as layout makes it, and not [H,W]."""
    mask = np.zeros((SIDE, SIDE, 3), np.uint8)
    mask[:, :24] = 3
    folder = project.data / "tar"
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as tar:
        for name, data in (("data.png", grey()), ("mask.png", png(mask))):
            info = tarfile.TarInfo(f"0.{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    dataset = (
        "{format: webdataset, root: data, path: tar, fields: {data: data.png, mask_file: mask.png}}"
    )
    graph = (
        "  - decode: {in: data, out: image}\n"
        "  - decode: {in: mask_file, out: mask}\n"
        "  - grayscale: {in: mask, num_output_channels: 1}\n"
        f"  - center_crop: {{in: [image, mask], size: {SIDE}}}\n"
        "  - layout: {in: mask, layout: CHW}\n"
    )
    project.pipeline("mask", graph, dataset=dataset, outputs="[image, mask]")
    sheet, shown = preview(project, "mask")
    assert shown["fields"] == ["image"]
    assert shown["samples"][0]["captions"] == [["mask: 3"]]
    half = near(cells(sheet, shown)[1], [(GREY + channel) / 2 for channel in CLASS_3])
    columns = np.nonzero(half.any(axis=0))[0]
    assert (columns.min(), columns.max()) == (1, 46)


def test_a_mask_without_an_image_is_a_picture_of_its_own(project):
    mask = np.zeros((2, 16, 16), np.uint8)
    mask[0, 4:12] = 3
    project.pipeline("mask", "  []\n", dataset=write_arrays(project, mask=mask), outputs="[mask]")
    sheet, shown = preview(project, "mask")
    assert shown["fields"] == ["mask"]
    assert near(sheet, [channel / 2 for channel in CLASS_3]).sum() > 150 * 60


def test_keypoints_are_dots_and_those_that_are_not_visible_are_counted(project):
    points = np.array([[24, 24, 1], [72, 72, 2], [10, 10, 0]], np.float32)
    dataset = write_tar(project, points=points)
    graph = "  - decode: {in: data, out: image}\n  - center_crop: {in: [image, points], size: 96}\n"
    project.pipeline("points", graph, dataset=dataset, outputs="[image, points]")
    sheet, shown = preview(project, "points")
    assert shown["samples"][0]["captions"] == [["3 keypoints; 1 not visible"]]
    drawn = cells(sheet, shown)[1]
    first, last, top, bottom = extent(drawn, CLASS_0)
    assert (first + last, top + bottom) == (96, 96)


def test_keypoints_beyond_those_that_are_drawn_are_counted(project):
    points = np.full((10_000, 3), 24, np.float32)
    points[:5] = np.nan
    points[5:12, 2] = 0
    points[12:22, :2] = -1
    dataset = write_tar(project, points=points)
    graph = "  - decode: {in: data, out: image}\n  - center_crop: {in: image, size: 96}\n"
    project.pipeline("points", graph, dataset=dataset,
                     outputs="[image, {points: {max_rows: 20000}}]")  # fmt: skip
    _, shown = preview(project, "points")
    assert shown["samples"][0]["captions"] == [
        ["10000 keypoints; 7 not visible; 10 outside; 5 not finite; 9678 not drawn"]
    ]


def test_the_parts_of_a_stacked_field_stand_side_by_side(project):
    views = np.random.Generator(np.random.PCG64(5)).integers(0, 256, (2, 5, 8, 8, 3), np.uint8)
    project.pipeline(
        "crops", "  []\n", dataset=write_arrays(project, crops=views), outputs="[crops]"
    )
    sheet, _ = preview(project, "crops")
    for record in range(2):
        places = [find(view.repeat(24, 0).repeat(24, 1), sheet) for view in views[record]]
        assert all(len(found) == 1 for found in places)
        assert len({found[0][0] for found in places}) == 1, "one row a record"
        columns = [found[0][1] for found in places]
        assert columns == sorted(columns)


def test_a_spectrogram_is_a_heat_map_with_its_first_row_at_the_bottom(project):
    values = np.repeat(np.arange(8, dtype=np.float32)[:, None], 16, axis=1) - 4
    values[3, 3] = np.nan
    project.pipeline(
        "sound", "  []\n", dataset=write_arrays(project, spec=values[None]), outputs="[spec]"
    )
    sheet, shown = preview(project, "sound")
    assert shown["samples"][0]["captions"] == [["-4 to 3, 1 not finite"]]
    dark, bright = np.nonzero(near(sheet, DARK)), np.nonzero(near(sheet, BRIGHT))
    cells_shown, width, height = 2, 190, 15  # the original's and the output's, within the frame
    assert dark[0].size >= cells_shown * width * height
    assert bright[0].size == cells_shown * width * height
    assert bright[0].max() < np.median(dark[0])


def test_a_long_heat_map_takes_little_more_memory_than_its_field(project):
    """It once grew to the cell's width while it still had all its rows."""
    values = np.tile(np.arange(5, dtype=np.float32), (2_000_000, 1))
    dataset = write_arrays(project, spec=values[None])
    project.pipeline("long", "  []\n", dataset=dataset, outputs="[spec]")
    sheet = project.folder / "sheet.bmp"
    process = subprocess.Popen(
        [PROGRAM, "preview", "long", "--config", project.config, "-o", sheet, "--draws", "1"],
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss < 1 << 20, "1 GiB; one such matrix had 1.5 GB, the field has 40 MB"
    pixels = read_bmp(sheet)
    for color in (DARK, BRIGHT):
        rows, columns = np.nonzero(near(pixels, color))
        assert np.unique(rows).size >= 110, "a column of the field is a stripe of the cell"
        assert np.unique(columns).size >= 30


def test_rows_of_a_heat_map_that_share_a_pixel_are_averaged(project):
    values = np.zeros((1200, 8), np.float32)
    values[1::2] = 1  # ten rows for each pixel
    values[:, 0], values[:, 7] = 0, 1
    dataset = write_arrays(project, spec=values[None])
    project.pipeline("rows", "  []\n", dataset=dataset, outputs="[spec]")
    sheet, _ = preview(project, "rows")
    middle = (33, 145, 140)  # of viridis
    assert (np.abs(sheet.astype(int) - middle).max(axis=2) <= 6).sum() >= 2 * 6 * 22 * 110


def test_a_waveform_reaches_as_far_as_its_samples(project):
    wave = np.zeros((1, 4000), np.float32)
    wave[0, 2000:] = np.where(np.arange(2000) % 2, 0.5, -0.5)
    project.pipeline("sound", "  []\n", dataset=write_arrays(project, wave=wave), outputs="[wave]")
    sheet, shown = preview(project, "sound")
    assert shown["samples"][0]["captions"] == [["-0.5 to 0.5"]]
    ink = (sheet == (40, 95, 170)).all(axis=2).sum(axis=0)
    lefts = [24, 24 + 192 + 30]  # the original's and the output's
    for left in lefts:
        assert ink[left + 10] == 1 and ink[left + 150] > 100


def test_tokens_and_text_are_written_and_control_no_terminal(project):
    text = np.zeros((2, 40), np.uint8)
    for row, words in enumerate(("a cat \x1b[31m\x07", "two\nlines")):
        text[row, : len(words)] = list(words.encode())
    arrays: dict[str, np.ndarray] = {"tokens": np.arange(2 * 77).reshape(2, 77), "text": text}
    project.pipeline(
        "text", "  []\n", dataset=write_arrays(project, **arrays), outputs="[tokens, text]"
    )
    first, shown = preview(project, "text")
    assert shown["fields"] == ["tokens", "text"]
    assert shown["samples"][0]["captions"] == [["77 numbers"], ["40 bytes"]]
    arrays["tokens"][0, 5] = 999
    write_arrays(project, **arrays)
    second, _ = preview(project, "text")
    assert first.shape == second.shape and (first != second).any()


def test_long_text_is_cut_between_two_characters_of_any_script(project):
    """600 bytes are shown. The cut leaves out the character that it goes through, and no other."""
    texts = {
        "a": "a" + "\u4e2d" * 199 + "\u4e2d" * 101,
        "b": "a" + "\u4e2d" * 199 + "\u56fd" * 101,  # the cut goes through the first of these
        "c": "b" + "\u4e2d" * 300,  # there may be no font for the others
    }
    sheets = {}
    for name, text in texts.items():
        row = np.frombuffer(text.encode(), np.uint8)[None]
        dataset = write_arrays(project, text=row)
        project.pipeline("text", "  []\n", dataset=dataset, outputs="[text]")
        sheets[name], shown = preview(project, "text")
        assert shown["samples"][0]["captions"] == [["901 bytes"]]
    assert (sheets["a"] == sheets["b"]).all(), "half a character was shown"
    assert sheets["a"].shape != sheets["c"].shape or (sheets["a"] != sheets["c"]).any()


def test_many_views_leave_room_for_fewer_epochs(project):
    views = np.zeros((2, 16, 8, 8, 3), np.uint8)
    project.pipeline(
        "crops", "  []\n", dataset=write_arrays(project, crops=views), outputs="[crops]"
    )
    sheet = project.folder / "sheet.bmp"
    result = run("preview", "crops", "--config", project.config, "-o", sheet, "--json")
    assert result.document["draws"] == 1


def test_boxes_that_do_not_move_with_their_image_are_shown_with_a_word_of_advice(project):
    write_coco(project, [[12, 24, 24, 48]])
    graph = "  - decode: {in: data, out: image}\n  - random_horizontal_flip: {in: image, p: 1}\n"
    plain = graph + "  - center_crop: {in: image, size: 96}\n"
    moved = plain.replace("in: image,", "in: [image, boxes, labels],")
    for text, advice in ((plain, 1), (moved, 0)):
        project.pipeline("boxes", text, dataset=COCO, outputs="[image, boxes, labels]")
        _, shown = preview(project, "boxes")
        assert shown["samples"][0]["captions"] == [["1 box: 1 cat"]]
        assert len(shown["advice"]) == advice, shown["advice"]

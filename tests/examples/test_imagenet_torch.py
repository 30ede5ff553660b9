"""imagenet_torch.py with the files of config/pipelines, whose pictures are made small here."""

from __future__ import annotations

import os
import re

import pytest
from conftest import command, run
from daemon_process import ROOT
from pictures import write_patterns

torch = pytest.importorskip("torch")

TRAIN, VAL = 192, 25  # 25 on three ranks of 4: in the last step, two ranks have nothing
SUMMARY = re.compile(r"\* +Acc@1 ([\d.]+) Acc@5 ([\d.]+)")
LOSS = re.compile(r"Epoch: \[(\d+)\]\[ *(\d+)/(\d+)\].*Loss \S+ \((\S+)\)")


@pytest.fixture
def imagenet(make_daemon):
    """A daemon with the ImageNet pipelines at 32x32 and a small folder in ImageNet's layout."""
    daemon = make_daemon()
    write_patterns(daemon.data / "train", TRAIN, side=40)
    write_patterns(daemon.data / "val", VAL, side=40)
    for name in ("imagenet-train", "imagenet-val"):
        text = (ROOT / f"config/pipelines/{name}.yaml").read_text()
        for old, new in (
            ("root: imagenet", "root: data"),
            ("224", "32"),
            ("resize:      {in: image, size: 256}", "resize: {in: image, size: 40}"),
            ("batch: {size: 256}", "batch: {size: 4}"),
        ):
            text = text.replace(old, new)
        assert "size: 2" not in text, "all sizes are small"
        daemon.add_pipeline(name, text)
    daemon.start()
    return daemon


def script(*arguments: object, ranks: int = 0) -> list[str]:
    options = ("-a", "resnet10", "--lr", 0.02, "-p", 1, *arguments)
    return command("imagenet_torch.py", *options, ranks=ranks)


@pytest.mark.parametrize("launch", ["plain", "torchrun 1", "torchrun 2", "spawn 2"])
def test_it_trains_validates_and_resumes(imagenet, tmp_path, launch):
    launcher, _, number = launch.partition(" ")
    batch = 16 // int(number or 1)  # of a rank: the same steps on one rank and on two

    def train(*arguments) -> str:
        if launcher == "spawn":
            return run(imagenet, script(*arguments, "-b", batch, "--spawn", number), tmp_path)
        ranks = int(number or 0)
        return run(imagenet, script(*arguments, "-b", batch, ranks=ranks), tmp_path)

    output = train("--epochs", 3)
    assert f"=> {TRAIN} images to train, {VAL} to validate" in output
    assert output.count(f" * {VAL} of {VAL} images counted") == 3
    steps = [(int(e), int(i), int(n)) for e, i, n, _ in LOSS.findall(output)]
    length = TRAIN // 16
    assert steps == [(e, i + 1, length) for e in range(3) for i in range(length)]
    averages = [float(loss) for _, i, _, loss in LOSS.findall(output) if int(i) == length]
    assert averages[-1] < averages[0], averages
    assert (tmp_path / "model_best.pth.tar").exists()

    saved = torch.load(tmp_path / "checkpoint.pth.tar", weights_only=True)
    assert saved["epoch"] == 3 and saved["loader"]["epoch"] == 3
    assert saved["loader"]["position"] == 0
    output = train("--epochs", 4, "--resume", "checkpoint.pth.tar")
    assert "=> loaded checkpoint 'checkpoint.pth.tar' (epoch 3)" in output
    assert {int(epoch) for epoch, *_ in LOSS.findall(output)} == {3}


def test_a_resumed_training_is_the_one_that_was_never_stopped(imagenet, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    run(imagenet, script("--epochs", 3, "-b", 16), whole)
    run(imagenet, script("--epochs", 1, "-b", 16), parts)
    run(imagenet, script("--epochs", 3, "-b", 16, "--resume", "checkpoint.pth.tar"), parts)
    one, other = (
        torch.load(folder / "checkpoint.pth.tar", weights_only=True) for folder in (whole, parts)
    )
    assert one["loader"] == other["loader"]
    assert one["best_acc1"] == other["best_acc1"]
    assert all(torch.equal(one["state_dict"][k], other["state_dict"][k]) for k in one["state_dict"])


@pytest.mark.parametrize("launch", ["plain", "torchrun", "spawn"])
def test_a_training_stopped_inside_an_epoch_goes_on_there(imagenet, tmp_path, launch):
    """It was saved last after step 10 of the second epoch: 11 and 12 are its rest."""
    ranks = 1 if launch == "plain" else 2
    batch = ("-b", 16 // ranks)
    spawn = ("--spawn", 2) if launch == "spawn" else ()
    launcher = 2 if launch == "torchrun" else 0
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()

    def train(folder, epochs, *more) -> str:
        arguments = ("--epochs", epochs, "--save-steps", 10, *batch, *spawn, *more)
        return run(imagenet, script(*arguments, ranks=launcher), folder)

    train(whole, 3)
    train(parts, 2)
    saved = torch.load(parts / "inside.pth.tar", weights_only=True)
    assert (saved["epoch"], saved["loader"]["epoch"], saved["loader"]["position"]) == (1, 1, 160)
    output = train(parts, 3, "--resume", "inside.pth.tar")
    steps = [(int(e), int(i)) for e, i, *_ in LOSS.findall(output)]
    assert [epoch for epoch, _ in steps] == [1] * 2 + [2] * 12
    one, other = (
        torch.load(folder / "checkpoint.pth.tar", weights_only=True) for folder in (whole, parts)
    )
    assert one["loader"] == other["loader"]
    assert all(torch.equal(one["state_dict"][k], other["state_dict"][k]) for k in one["state_dict"])


def test_validation_counts_each_image_once_on_any_number_of_ranks(imagenet, tmp_path):
    run(imagenet, script("--epochs", 2, "-b", 16), tmp_path)
    accuracies = set()
    evaluate = ("--evaluate", "--resume", "checkpoint.pth.tar")
    ways = [script(*evaluate, ranks=ranks) for ranks in (0, 1, 2, 3)]
    ways += [script(*evaluate, "--spawn", ranks) for ranks in (1, 2, 3)]
    for way in ways:
        output = run(imagenet, way, tmp_path)
        assert f" * {VAL} of {VAL} images counted" in output
        ((top1, top5),) = SUMMARY.findall(output)
        accuracies.add((float(top1), float(top5)))
    ((top1, top5),) = accuracies
    assert top5 == 100, "there are three classes"
    assert round(top1 * VAL / 100, 3) % 1 == 0, "right answers are whole"


# Python reads it at its start, in processes of torchrun and of mp.spawn, too.
NOTE_WHAT_IS_SEEN = """import feedwater

class Noting(feedwater.Loader):
    def __iter__(self):
        for batch in super().__iter__():
            if len(batch) == 4:
                *batch, sample_id = batch
                with open(f"seen.{self.world_size}.{self.rank}", "a") as file:
                    file.writelines(f"{i}\\n" for i in sample_id[batch[2]].tolist())
            yield batch

feedwater.Loader = Noting
"""


def test_validation_sees_each_image_once_by_its_identity(imagenet, tmp_path, monkeypatch):
    """The loader delivers sample_id, too, which is noted and not shown to the script."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(NOTE_WHAT_IS_SEEN)
    path = [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    text = (imagenet.pipelines / "imagenet-val.yaml").read_text()
    noted = tmp_path / "noted.yaml"
    noted.write_text(text.replace("label, is_real]", "label, is_real, sample_id]"))
    evaluate = ("--evaluate", "--val-pipeline", noted)
    for way, ranks in [
        (script(*evaluate, ranks=1), 1),
        (script(*evaluate, ranks=3), 3),
        (script(*evaluate, "--spawn", 2), 2),
    ]:
        run(imagenet, way, tmp_path)
        files = sorted(tmp_path.glob(f"seen.{ranks}.*"))
        seen = [int(line) for file in files for line in file.read_text().split()]
        assert len(files) == ranks
        assert sorted(seen) == list(range(VAL)), way


def test_padding_does_not_count_either(imagenet, tmp_path):
    """With `last: pad`, the last steps are filled up, and is_real says with what."""
    text = (imagenet.pipelines / "imagenet-val.yaml").read_text()
    padded = tmp_path / "padded.yaml"
    padded.write_text(text.replace("last: partial", "last: pad"))
    output = run(imagenet, script("--evaluate", "--val-pipeline", padded, ranks=3), tmp_path)
    assert f" * {VAL} of {VAL} images counted" in output


def test_an_unknown_model_is_refused_with_those_that_are_known(imagenet, tmp_path):
    with pytest.raises(AssertionError, match="no model 'resnet1'; built in: resnet10, resnet18"):
        run(imagenet, command("imagenet_torch.py", "-a", "resnet1"), tmp_path)

"""Lightning and Accelerate with a Loader where a DataLoader would be."""

from __future__ import annotations

import itertools

import pytest
from conftest import PIPELINE, command, run

import feedwater

torch = pytest.importorskip("torch")

EPOCH = 192  # records of `shapes`, in 12 steps of 16


@pytest.fixture
def make_loader(daemon):
    loaders = []

    def make(pipeline="shapes", **options) -> feedwater.Loader:
        loaders.append(feedwater.Loader(pipeline, address=daemon.address, **options))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


class Fits:
    """Trains with Lightning, and keeps what each epoch saw."""

    def __init__(self, make_loader, folder) -> None:
        self.lightning = pytest.importorskip("lightning")
        self.make_loader = make_loader
        self.folder = folder

    def run(self, epochs: int, checkpoint=None, **options) -> dict[int, list[int]]:
        seen: dict[int, list[int]] = {}

        class Model(self.lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.head = torch.nn.Linear(3 * 16 * 16, 3)

            def training_step(self, batch, _):
                image, label, position = batch
                seen.setdefault(self.current_epoch, []).extend(position.tolist())
                return torch.nn.functional.cross_entropy(self.head(image.flatten(1)), label)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.01)

        trainer = self.lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=str(self.folder),
            **options,
        )
        trainer.fit(Model(), self.make_loader(), ckpt_path=checkpoint)
        self.trainer = trainer
        return seen


@pytest.mark.parametrize("when", ["epoch end", "mid-epoch"])
def test_lightning_trains_and_resumes(make_loader, tmp_path, when):
    fits = Fits(make_loader, tmp_path)
    from lightning.pytorch.callbacks import ModelCheckpoint

    whole = list(range(EPOCH))
    assert fits.run(3) == {0: whole, 1: whole, 2: whole}
    steps = {"every_n_epochs": 1} if when == "epoch end" else {"every_n_train_steps": 17}
    saver = ModelCheckpoint(dirpath=tmp_path / "saved", save_top_k=-1, **steps)
    fits.run(2, callbacks=[saver])
    (*_, last) = sorted((tmp_path / "saved").iterdir())
    resumed = fits.run(3, last)
    rest = [] if when == "epoch end" else whole[5 * 16 :]
    assert resumed == ({1: rest} if rest else {}) | {2: whole}


def test_accelerate_uses_a_loader_as_it_is(make_loader):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(make_loader(device=accelerator.device))
    seen = [accelerator.gather_for_metrics(position).clone() for *_, position in loader]
    assert torch.cat(seen).tolist() == list(range(EPOCH))
    loader.skip(0, 9)
    assert [position[0] for *_, position in loader] == [160, 176]


def test_what_accelerate_would_make_anew_is_refused_with_the_cure(make_loader):
    data_loader = pytest.importorskip("accelerate.data_loader")
    for wrap in (
        data_loader.prepare_data_loader,
        lambda one: data_loader.skip_first_batches(one, 3),
    ):
        with pytest.raises(TypeError, match=r"loader\.skip\(0, n - 1\)"):
            list(itertools.islice(wrap(make_loader()), 1))


def test_accelerate_is_told_of_the_last_batch_behind_skips_and_breaks(make_loader, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    text = PIPELINE.replace("last: drop", "last: pad").replace("shuffle: full", "shuffle: none")
    padded = tmp_path / "padded.yaml"
    padded.write_text(text.replace("[image, label, position]", "[position]"))
    accelerator = accelerate.Accelerator(cpu=True)

    def gathered(loader) -> list[int]:
        return [
            position
            for (positions,) in loader
            for position in accelerator.gather_for_metrics(positions).tolist()
        ]

    loader = make_loader(pipeline=padded, batch_size=50)
    assert gathered(loader) == list(range(EPOCH))
    # What another batch size has left out, with the last batch right behind it.
    other = make_loader(pipeline=padded, batch_size=16, job="other")
    other.skip(3, 9)
    loader.load_state_dict({**other.state_dict()})
    assert gathered(loader) == list(range(160, EPOCH))
    # Without the last step, the one before it is the last, and whole.
    loader.set_epoch(5)
    loader.skip(3, 3)
    ends = [loader.end_of_dataloader for _ in loader]
    assert ends == [False, False, True]
    assert gathered(make_loader(pipeline=padded, batch_size=50, job="third")) == list(range(EPOCH))
    # One that is left by `break` is not the one that is being iterated any more.
    state = accelerator.gradient_state
    for _ in loader:
        break
    assert not state.in_dataloader


GATHERS = """
import sys
from accelerate import Accelerator
import feedwater
accelerator = Accelerator(cpu=True)
with accelerator.prepare(feedwater.Loader(sys.argv[1], device=accelerator.device)) as loader:
    for _ in range(2):
        seen = []
        for _, position, is_real in loader:
            with accelerator.accumulate():
                seen += accelerator.gather_for_metrics(position).tolist()
        if accelerator.is_main_process:
            print(len(seen), sorted(seen) == list(range(int(sys.argv[2]))), flush=True)
    assert not accelerator.gradient_state.in_dataloader
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("batch", [16, 50, 64])
def test_accelerate_gathers_each_sample_once(daemon, tmp_path, ranks, batch):
    """192 records in batches that do not come out even: what `pad` repeats is cut off."""
    pytest.importorskip("accelerate")
    text = PIPELINE.replace("last: drop", "last: pad").replace("batch: {size: 16}", "")
    pipeline = tmp_path / "padded.yaml"
    pipeline.write_text(
        text.replace("[image, label, position]", "[image, position, is_real]")
        + f"batch: {{size: {batch}}}\n"
    )
    script = tmp_path / "gathers.py"
    script.write_text(GATHERS)
    output = run(daemon, command(script, pipeline, EPOCH, ranks=ranks), tmp_path)
    assert output.split("\n")[:2] == [f"{EPOCH} True"] * 2

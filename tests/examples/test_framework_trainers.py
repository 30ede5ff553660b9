"""Lightning and Accelerate with a Loader where a DataLoader would be."""

from __future__ import annotations

import itertools
import re

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


def test_accelerate_skips_first_batches_without_reading_them(make_loader):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(make_loader(device=accelerator.device))
    rest = accelerator.skip_first_batches(loader, 9)
    seen = [accelerator.gather_for_metrics(position).clone() for *_, position in rest]
    assert torch.cat(seen).tolist() == list(range(9 * 16, EPOCH))
    assert loader.stats()["batches"] == 3
    assert not accelerator.gradient_state.in_dataloader
    assert [position[0] for *_, position in loader] == list(range(0, EPOCH, 16))


def test_what_would_share_out_the_batches_once_more_is_refused(make_loader):
    data_loader = pytest.importorskip("accelerate.data_loader")
    alone = data_loader.prepare_data_loader(make_loader(), num_processes=1, process_index=0)
    assert [position[0] for *_, position in alone] == list(range(0, EPOCH, 16))
    for rank in range(2):
        with pytest.raises(TypeError, match=r"Use it as it is \(accelerator.prepare"):
            list(
                data_loader.prepare_data_loader(
                    make_loader(), num_processes=2, process_index=rank, put_on_device=False
                )
            )


@pytest.mark.parametrize("stateful", [False, True])
def test_accelerate_saves_and_loads_the_position(make_loader, tmp_path, stateful):
    accelerate = pytest.importorskip("accelerate")
    if stateful:
        pytest.importorskip("torchdata.stateful_dataloader")

    def prepared():
        configuration = accelerate.DataLoaderConfiguration(use_stateful_dataloader=stateful)
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
        loader = accelerator.prepare(make_loader())
        accelerator.register_for_checkpointing(loader)
        return accelerator, loader

    accelerator, loader = prepared()
    for _ in itertools.islice(loader, 5):
        pass
    accelerator.save_state(str(tmp_path / "state"))
    accelerator, again = prepared()
    accelerator.load_state(str(tmp_path / "state"))
    assert [position[0] for *_, position in again] == list(range(5 * 16, EPOCH, 16))


def test_distributed_checkpoints_of_torch_take_a_loader_as_stateful(make_loader, tmp_path):
    """The protocol of torch.distributed.checkpoint and torchdata, which torchtitan builds on."""
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    from torch.distributed.checkpoint.stateful import Stateful

    loader = make_loader()
    assert isinstance(loader, Stateful)
    for _ in itertools.islice(loader, 5):
        pass
    checkpoint.save({"loader": loader}, checkpoint_id=tmp_path / "saved", no_dist=True)
    again = make_loader()
    checkpoint.load({"loader": again}, checkpoint_id=tmp_path / "saved", no_dist=True)
    assert [position[0] for *_, position in again] == list(range(5 * 16, EPOCH, 16))


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


EVALUATES = """
import sys
import torch
from transformers import Trainer, TrainingArguments
import feedwater

class Model(torch.nn.Module):
    def forward(self, image, position, is_real):
        scores = image.flatten(1)[:, :3]
        return {"loss": scores.mean(), "logits": scores, "labels": position}

class Evaluator(Trainer):
    def get_eval_dataloader(self, dataset=None):
        return loader

arguments = TrainingArguments(
    "trainer", use_cpu=True, report_to="none", per_device_eval_batch_size=50,
    label_names=["position"], disable_tqdm=True,
)
loader = feedwater.Loader(sys.argv[1], as_dict=True, batch_size=50)
trainer = Evaluator(
    Model(), arguments, eval_dataset=loader.dataset,
    compute_metrics=lambda p: {"positions": sorted(p.label_ids.tolist())},
)
for _ in range(2):
    seen = trainer.evaluate()["eval_positions"]
    if arguments.process_index == 0:
        print(seen == list(range(int(sys.argv[2]))), flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trainer_of_transformers_evaluates_each_sample_once(daemon, tmp_path, ranks):
    pytest.importorskip("transformers")
    text = PIPELINE.replace("last: drop", "last: pad")
    pipeline = tmp_path / "padded.yaml"
    pipeline.write_text(text.replace("[image, label, position]", "[image, position, is_real]"))
    script = tmp_path / "evaluates.py"
    script.write_text(EVALUATES)
    output = run(daemon, command(script, pipeline, EPOCH, ranks=ranks), tmp_path)
    assert re.findall(r"^(True|False)$", output, re.MULTILINE) == ["True"] * 2, output


# Loaders that are made in one process and used in others.

SPAWN = """
import sys
import torch, torch.distributed
import feedwater

def train(rank, loader, folder):
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", store, rank=rank, world_size=2)
    with open(f"{folder}/{loader.rank}", "w") as file:
        file.write(" ".join(str(p) for *_, position in loader for p in position.tolist()))
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (feedwater.Loader(sys.argv[1]), sys.argv[2]), nprocs=2)
"""

LIGHTNING = """
import sys
import lightning, torch
import feedwater

class Model(lightning.LightningModule):
    def __init__(self, folder):
        super().__init__()
        self.folder, self.head = folder, torch.nn.Linear(3 * 16 * 16, 3)

    def training_step(self, batch, number):
        image, label, position = batch
        with open(f"{self.folder}/{self.global_rank}", "a") as file:
            file.write(" ".join(map(str, position.tolist())) + " ")
        return torch.nn.functional.cross_entropy(self.head(image.flatten(1)), label)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

if __name__ == "__main__":
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=2, strategy="ddp_spawn", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Model(sys.argv[2]), feedwater.Loader(sys.argv[1]))
"""

RAY = """
import sys
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
import feedwater

loader, folder = feedwater.Loader(sys.argv[1]), sys.argv[2]

def train():
    with open(f"{folder}/{loader.rank}", "w") as file:
        file.write(" ".join(str(p) for *_, position in loader for p in position.tolist()))

TorchTrainer(
    train,
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=folder + "/ray"),
).fit()
"""


@pytest.mark.parametrize(
    ("module", "text"),
    [("torch", SPAWN), ("lightning", LIGHTNING), ("ray.train", RAY)],
    ids=["torch", "lightning", "ray"],
)
def test_a_loader_that_is_sent_to_workers_is_one_rank_in_each(daemon, tmp_path, module, text):
    pytest.importorskip(module)
    script = tmp_path / "sends.py"
    script.write_text(text)
    run(daemon, command(script, "shapes", tmp_path), tmp_path)
    seen = [list(map(int, (tmp_path / str(rank)).read_text().split())) for rank in range(2)]
    assert seen == [[p for p in range(EPOCH) if p // 16 % 2 == rank] for rank in range(2)]

"""torch output: views without a copy, over a copy-on-write mapping."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from reading import check, positions

import feedwater
from feedwater import outputs, wire

torch = pytest.importorskip("torch")
ALL = list(range(40))


def as_numpy(batch):
    out = {}
    for name, tensor in batch.items():
        raw = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
        out[name] = raw.numpy().view(np.uint16) if tensor.dtype is torch.bfloat16 else raw.numpy()
    return out


def test_torch_is_the_default_where_it_is_installed(daemon):
    with feedwater.Loader("numbers", address=str(daemon.directory)) as loader:
        assert loader.output == "torch"
        image, label, *_ = next(iter(loader))
        assert image.dtype is torch.float32 and image.shape == (4, 3, 4, 5)
        assert label.dtype is torch.int64 and label.shape == (4,)


def test_every_type_arrives_with_its_bytes(daemon, open_loader):
    loader = open_loader(daemon, output="torch")
    for epoch in range(2):
        seen = []
        for batch in loader:
            assert batch["half"].dtype is torch.bfloat16
            assert batch["is_real"].dtype is torch.bool
            assert batch["half"][0].tolist() == [float(batch["sample_id"][0]), float(epoch)]
            check(as_numpy(batch), epoch)
            seen += positions(batch)
        assert seen == ALL


def test_tensors_are_views_over_the_slots(daemon, open_loader):
    loader = open_loader(daemon, output="torch")
    arena = loader._feed.stream._session.arena
    for batch in loader:
        offset = batch["image"].data_ptr() - arena.address
        assert 0 <= offset < arena.slots * arena.slot_bytes


def test_a_slot_that_an_operation_in_place_has_written_shows_the_next_batch(daemon, open_loader):
    loader = open_loader(daemon, output="torch", slots=2)
    for epoch in range(3):
        for batch in loader:
            check(as_numpy(batch), epoch)
            batch["image"].mul_(0).sub_(1)
            batch["pixels"][2].fill_(255)
            del batch


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t,
        lambda t: t[1:, 0],
        lambda t: t.view(-1),
        lambda t: t.permute(3, 2, 1, 0),
        lambda t: t.numpy(),
        lambda t: t.detach(),
        lambda t: torch.utils.dlpack.to_dlpack(t),
        lambda t: np.from_dlpack(t),
        lambda t: t.untyped_storage(),
        lambda t: torch.nn.Parameter(t),
    ],
)
def test_every_kind_of_view_keeps_the_batch_and_the_last_one_gives_it_back(
    daemon, open_loader, make
):
    loader = open_loader(daemon, output="torch")
    view = make(next(iter(loader))["image"])
    gc.collect()
    assert loader.stats()["held"] == 1
    del view
    gc.collect()
    assert loader.stats()["held"] == 0


def test_a_graph_for_the_gradient_keeps_what_it_needs(daemon, open_loader):
    loader = open_loader(daemon, output="torch")
    weight = torch.ones(60, requires_grad=True)
    for batch in loader:
        loss = (batch["image"].flatten(1) * weight).sum()
        expected = as_numpy(batch)["image"].reshape(4, 60).sum(axis=0)
        del batch
        loss.backward()
        np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-6)
        weight.grad = None


def test_copies_may_be_kept_without_end(daemon, open_loader):
    loader = open_loader(daemon, output="torch", slots=2)
    kept = [{name: x.clone() for name, x in batch.items()} for batch in loader]
    assert [p for batch in kept for p in positions(batch)] == ALL
    for batch in kept:
        check(as_numpy(batch), 0)


def test_read_only_torch_does_not_exist(daemon, open_loader):
    with pytest.raises(feedwater.InvalidArgument, match="no read-only tensors"):
        open_loader(daemon, output="torch", writable=False)


def test_the_cpu_as_device_is_no_copy_and_an_unknown_device_is_an_error(daemon, open_loader):
    loader = open_loader(daemon, output="torch", device="cpu")
    check(as_numpy(next(iter(loader))), 0)
    with pytest.raises(feedwater.InvalidArgument, match="nonsense"):
        open_loader(daemon, output="torch", device="nonsense")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_gets_copies_and_the_slots_go_back(daemon, open_loader):
    loader = open_loader(daemon, output="torch", device="cuda", slots=2)
    for epoch in range(3):
        kept = list(loader)  # copies: as many as the device holds
        for batch in kept:
            assert batch["image"].is_cuda
            check(as_numpy({name: x.cpu() for name, x in batch.items()}), epoch)
    torch.cuda.synchronize()


def test_tensors_may_be_sent_to_a_worker_process(daemon, open_loader):
    """Through torch's own multiprocessing, which copies them to its shared memory."""
    loader = open_loader(daemon, output="torch")
    batch = next(iter(loader))
    image = batch["image"].clone()
    shared = batch["image"].share_memory_()
    assert torch.equal(shared, image)


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_checkpoint_of_torch_carries_the_state(daemon, open_loader, tmp_path, weights_only):
    loader = open_loader(daemon, output="torch")
    iterator = iter(loader)
    seen = [p for _ in range(3) for p in positions(next(iterator))]
    loader.skip(5, 6)
    model = torch.nn.Linear(2, 2)
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "data": loader.state_dict()}, path)
    loader.close()

    again = open_loader(daemon, output="torch", job="again")
    checkpoint = torch.load(path, weights_only=weights_only)
    again.load_state_dict(checkpoint["data"])
    seen += [p for batch in again for p in positions(batch)]
    assert seen == ALL[:20] + ALL[28:]


def test_protected_memory_may_be_written_and_shows_the_next_batch(daemon, open_loader):
    loader = open_loader(daemon, output="torch", slots=2, debug_protect=True)
    for epoch in range(2):
        for batch in loader:
            check(as_numpy(batch), epoch)
            batch["image"].mul_(0).sub_(1)
            del batch


def test_labels_and_losses_may_be_kept_as_in_any_loop(daemon, open_loader, monkeypatch, caplog):
    """`targets.append(label)` keeps no slot: small outputs are copies. `total = total + loss` keeps
    the images of all steps in its graph: they are copied when the slots are gone.
    """
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "2")
    monkeypatch.setattr(outputs, "SMALL_BYTES", 128)  # a batch's labels; an image is larger
    loader = open_loader(daemon, output="torch", slots=4)
    targets = []
    for batch in loader:
        targets.append(batch["label"])
    del batch
    assert (loader.stats()["held"], loader.stats()["spilled"]) == (0, 0)
    assert [int(x) for target in targets for x in target] == [
        int(x) for batch in open_loader(daemon, job="again") for x in batch["label"]
    ]

    def expected(epoch):
        whole = open_loader(daemon, job=f"epoch{epoch}")
        whole.set_epoch(epoch)
        return sum(batch["image"].reshape(4, 60).sum(axis=0, dtype=np.float64) for batch in whole)

    weight = torch.ones(60, dtype=torch.float64, requires_grad=True)
    total = 0.0
    for batch in loader:
        total = total + (batch["image"].flatten(1) * weight).sum()
    del batch
    assert loader.stats()["spilled"] == 7, "of ten steps, three keep their slots"
    assert sum("slots=N" in record.getMessage() for record in caplog.records) == 1
    total.backward()
    np.testing.assert_allclose(weight.grad.numpy(), expected(1), rtol=1e-6)
    del total
    assert loader.stats()["held"] == 0


@pytest.mark.parametrize("ending", ["mine", "bad sample", "exit"])
def test_an_error_in_the_first_batches_is_the_last_thing_that_is_said(daemon, ending):
    """The interpreter ends while batches are held: nothing else may be printed then."""
    if ending == "bad sample":
        daemon.faults.fail_at[0, 2] = wire.Failed(0, 15, 0, 2, 0, 17, "a/b.jpg", "cut off")
    program = (
        "import sys, feedwater\n"
        f"loader = feedwater.Loader('numbers', address={str(daemon.directory)!r}, slots=4)\n"
        "batches = iter(loader)\n"
        "first, second = next(batches), [next(batches)]\n"
        "loss = first[0].sum() + second[0][0].sum()\n"
        f"{ {'mine': 'raise ValueError(1)', 'exit': 'sys.exit(0)'}.get(ending, 'next(batches)') }\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
    )
    lines = done.stderr.splitlines()
    if ending == "exit":
        assert (done.returncode, lines) == (0, [])
        return
    assert done.returncode == 1
    assert lines[0].startswith("Traceback"), done.stderr
    last = {"mine": "ValueError: 1", "bad sample": "feedwater.errors.BadSample: "}[ending]
    assert lines[-1].startswith(last) and "Exception ignored" not in done.stderr, done.stderr

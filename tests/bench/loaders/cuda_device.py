"""One side of the benchmark `device`: batches to a CUDA device, and what a program waits for.

    python cuda_device.py copies PIPELINE SECONDS
    python cuda_device.py train-feedwater PIPELINE SECONDS
    python cuda_device.py train-dataloader PHOTOS SECONDS
    python cuda_device.py train-resident - SECONDS

`copies` prints seconds of each way to the device, with a step behind each copy and without; the
others images a second of ResNet-50's training, `resident` from one batch that stays there.
"""

import json
import os
import sys
import time
from collections import defaultdict
from functools import partial

import torch

SLOTS = 24
TAKEN = 16  # batches that surely wait when nothing has been asked for in a while
BATCH, WARM = 256, 40
ROUNDS = 15


def seconds(run) -> float:
    """Return how long the device takes for what `run` asks of it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def busy(long_s: float):
    """Return a step of the device that takes about so long, and the host hardly anything."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def times(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix)

    times(20)
    count = max(1, round(long_s / (seconds(lambda: times(50)) / 50)))
    return lambda: times(count)


def open_arrays(pipeline: str, device):
    import feedwater

    return feedwater.Loader(
        pipeline, daemon="private", output="torch", device=device, slots=SLOTS, memory="8GiB"
    )


def copies(pipeline: str) -> dict[str, list[float]]:
    """Measure waiting batches' way to the device, beside copies from torch's pinned memory."""
    loaders = {"loader": open_arrays(pipeline, "cuda"), "by_hand": open_arrays(pipeline, None)}
    batches = {name: endless(loader) for name, loader in loaders.items()}
    size = next(batches["by_hand"])[0].nbytes
    memory = {
        "pinned": torch.empty(size, dtype=torch.uint8, pin_memory=True),
        "pageable": torch.zeros(size, dtype=torch.uint8),
    }

    def copy_from(name: str) -> None:
        for _ in range(TAKEN):
            memory[name].to("cuda", non_blocking=True)

    for _ in range(3):
        long_s = seconds(lambda: copy_from("pinned")) / TAKEN
    step = busy(long_s)

    def take(name: str, then) -> None:
        for _ in range(TAKEN):
            batch = next(batches[name])[0]
            if not batch.is_cuda:
                batch = batch.to("cuda")
            then()

    found = defaultdict(list)
    for _ in range(ROUNDS):
        for name in memory:
            found[name].append(seconds(partial(copy_from, name)))
        found["step"].append(seconds(lambda: [step() for _ in range(TAKEN)]))
        for suffix, then in (("", bool), ("_and_step", step)):
            for name in batches:
                time.sleep(0.3)  # the daemon fills the slots
                found[name + suffix].append(seconds(partial(take, name, then)))
    for loader in loaders.values():
        loader.close()
    return found


def endless(loader):
    """Yield batches of one epoch after the other."""
    while True:
        yield from loader


def train(side: str, source: str, limit_s: float) -> dict[str, list[float]]:
    """Train ResNet-50 in bfloat16, and return images a second of each epoch but the first.

    The first batches of an epoch do not count, before which a DataLoader has nothing ready.
    """
    import torchvision

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

    def step(image, label) -> None:
        image = image.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model(image), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    image = torch.randn(BATCH, 3, 224, 224, device="cuda")
    resident = image, torch.zeros(BATCH, dtype=torch.int64, device="cuda")
    for _ in range(10):
        step(*resident)
    if side == "feedwater":
        import feedwater

        batches = feedwater.Loader(source, daemon="private", output="torch", device="cuda")
    else:
        batches = dataloader(source) if side == "dataloader" else [resident] * 2 * WARM

    def epoch() -> float:
        for number, (image, label) in enumerate(batches):
            if number == WARM:
                torch.cuda.synchronize()
                began = time.perf_counter()
            step(image.cuda(non_blocking=True), label.cuda(non_blocking=True))
        torch.cuda.synchronize()
        return (number + 1 - WARM) * BATCH / (time.perf_counter() - began)

    rates, began = [], time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - began < limit_s:
        rates.append(epoch())
    return {"images_per_s": rates[1:]}


def dataloader(photos: str):
    """Return the DataLoader of PyTorch's ImageNet example, with a worker for each CPU."""
    from torchvision import datasets, transforms

    transform = transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])  # fmt: skip
    return torch.utils.data.DataLoader(
        datasets.ImageFolder(photos, transform), BATCH, shuffle=True, drop_last=True,
        num_workers=len(os.sched_getaffinity(0)), pin_memory=True, persistent_workers=True,
    )  # fmt: skip


def main() -> None:
    what, source, limit_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if what == "copies":
        found = copies(source)
    else:
        found = train(what.removeprefix("train-"), source, limit_s)
    print(json.dumps({"device": torch.cuda.get_device_name(), **found}))


if __name__ == "__main__":
    main()

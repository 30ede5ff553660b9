"""ImageNet training in the shape of pytorch/examples, with Feedwater in place of the DataLoaders.

What differs from that script is marked `Feedwater:`. One process, or one a GPU:

    python imagenet_torch.py -a resnet50
    torchrun --nproc-per-node 8 imagenet_torch.py -a resnet50 -b 128
    python imagenet_torch.py -a resnet50 -b 128 --spawn 8
    python imagenet_torch.py --resume checkpoint.pth.tar --evaluate

The pipelines are those of config/pipelines: `imagenet-train`, which delivers image and label, and
`imagenet-val`, which delivers image, label and is_real, with `last: partial`, so that every image
is looked at exactly once on any number of ranks. Any folder of class folders will do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from enum import Enum

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import feedwater

try:
    from torchvision import models
except ImportError:
    models = None


def parse_arguments() -> argparse.Namespace:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--train-pipeline", default="imagenet-train", metavar="NAME", help="default: %(default)s")
    add("--val-pipeline", default="imagenet-val", metavar="NAME", help="default: %(default)s")
    add("-a", "--arch", default="resnet18", help="default: %(default)s; small ones are built in")
    add("--epochs", default=90, type=int, metavar="N", help="default: %(default)s")
    add("-b", "--batch-size", type=int, metavar="N", help="a rank's; default: the pipeline's")
    add("--lr", "--learning-rate", default=0.1, type=float, help="default: %(default)s")
    add("--momentum", default=0.9, type=float, metavar="M", help="default: %(default)s")
    add("--wd", "--weight-decay", default=1e-4, type=float, help="default: %(default)s")
    add("-p", "--print-freq", default=10, type=int, metavar="N", help="default: %(default)s")
    add("--resume", default="", metavar="PATH", help="a checkpoint to continue")
    add("-e", "--evaluate", action="store_true", help="only validate")
    add("--save-steps", default=0, type=int, metavar="N", help="save inside.pth.tar, too")
    add("--spawn", default=0, type=int, metavar="RANKS", help="processes, without a launcher")
    add("--seed", default=0, type=int, help="of the weights; the pipeline has one for the data")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if not args.spawn:
        run(int(os.environ.get("LOCAL_RANK", "0")), args)
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = f"file://{folder}/meeting"
        torch.multiprocessing.spawn(run, (args, meeting_point), nprocs=args.spawn)


def run(local_rank, args, meeting_point=None):
    torch.manual_seed(args.seed)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if meeting_point is not None:
        dist.init_process_group(
            backend, init_method=meeting_point, rank=local_rank, world_size=args.spawn
        )
    elif "RANK" in os.environ:  # torchrun
        dist.init_process_group(backend)

    # Feedwater: no datasets, transforms, workers, samplers; rank and world size are the process
    # group's, whoever made it.
    train_loader = feedwater.Loader(
        args.train_pipeline, batch_size=args.batch_size, output="torch", device=device
    )
    val_loader = feedwater.Loader(
        args.val_pipeline, batch_size=args.batch_size, output="torch", device=device
    )

    model = create_model(args.arch, len(train_loader.classes)).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.wd
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)

    best_acc1, start_epoch = 0.0, 0
    if args.resume:
        say(f"=> loading checkpoint '{args.resume}'")
        checkpoint = torch.load(args.resume, map_location=device, weights_only=True)
        if checkpoint["arch"] != args.arch:
            raise SystemExit(f"{args.resume} is a {checkpoint['arch']}: give -a")
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        best_acc1, start_epoch = checkpoint["best_acc1"], checkpoint["epoch"]
        if not args.evaluate:
            train_loader.load_state_dict(checkpoint["loader"])  # Feedwater: the very next sample
        say(f"=> loaded checkpoint '{args.resume}' (epoch {start_epoch})")
    say(f"=> {len(train_loader.dataset)} images to train, {len(val_loader.dataset)} to validate")

    if args.evaluate:
        validate(val_loader, model, device, args)
        start_epoch = args.epochs  # nothing to train
    trained = DistributedDataParallel(model) if dist.is_initialized() else model

    def state(done):
        return {
            "epoch": done,
            "arch": args.arch,
            "state_dict": model.state_dict(),
            "best_acc1": best_acc1,
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "loader": train_loader.state_dict(),  # Feedwater
        }

    for epoch in range(start_epoch, args.epochs):
        train_loader.sampler.set_epoch(epoch)  # Feedwater: inside a resumed epoch, its rest
        train(train_loader, trained, criterion, optimizer, epoch, args, state)
        acc1 = validate(val_loader, model, device, args)
        scheduler.step()

        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if train_loader.rank == 0:
            save_checkpoint(state(epoch + 1), is_best)

    train_loader.close()
    val_loader.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def train(train_loader, model, criterion, optimizer, epoch, args, state):
    batch_time = AverageMeter("Time", ":6.3f", Summary.NONE)
    data_time = AverageMeter("Data", ":6.3f", Summary.NONE)
    losses = AverageMeter("Loss", ":.4e", Summary.NONE)
    top1 = AverageMeter("Acc@1", ":6.2f", Summary.NONE)
    progress = ProgressMeter(
        len(train_loader), [batch_time, data_time, losses, top1], f"Epoch: [{epoch}]"
    )
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        data_time.update(time.time() - end)
        output = model(images)
        loss = criterion(output, target)

        losses.update(loss.item(), images.size(0))
        top1.update(100.0 * correct(output, target, 1) / images.size(0), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            progress.display(i + 1)
        if args.save_steps and (i + 1) % args.save_steps == 0 and train_loader.rank == 0:
            save_checkpoint(state(epoch), False, "inside.pth.tar")


def validate(val_loader, model, device, args):
    """Return the accuracy over every image of the dataset, each counted once.

    Takes the model itself, not DistributedDataParallel, which would let ranks wait for each other
    in every forward pass.
    """
    batch_time = AverageMeter("Time", ":6.3f", Summary.NONE)
    top1 = AverageMeter("Acc@1", ":6.2f", Summary.AVERAGE)
    top5 = AverageMeter("Acc@5", ":6.2f", Summary.AVERAGE)
    progress = ProgressMeter(len(val_loader), [batch_time, top1, top5], "Test: ")
    if dist.is_initialized():
        # Each rank's batch norm has seen its own batches; what is saved and validated is rank 0's.
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
    model.eval()
    end = time.time()
    with torch.no_grad():
        for i, (images, target, is_real) in enumerate(val_loader):
            # Feedwater: no second loader for the images that do not divide evenly. The last batch
            # is smaller, on some ranks empty (`last: partial`), or filled up (`last: pad`); is_real
            # is false for what fills.
            images, target = images[is_real], target[is_real]
            if len(target):
                output = model(images)
                top1.update(100.0 * correct(output, target, 1) / len(target), len(target))
                top5.update(100.0 * correct(output, target, 5) / len(target), len(target))
            batch_time.update(time.time() - end)
            end = time.time()
            if i % args.print_freq == 0:
                progress.display(i + 1)
    if dist.is_initialized():
        top1.all_reduce(device)
        top5.all_reduce(device)
    progress.display_summary()
    say(f" * {top1.count:.0f} of {len(val_loader.dataset)} images counted")
    return top1.avg


def correct(output, target, k):
    """Return how many targets are among the k best scores."""
    _, best = output.topk(min(k, output.size(1)), dim=1)
    return (best == target[:, None]).any(dim=1).sum().item()


def say(text):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(text, flush=True)


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename + ".new")
    os.replace(filename + ".new", filename)  # a kill leaves the old one or the new one
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


class Summary(Enum):
    NONE = 0
    AVERAGE = 1


class AverageMeter:
    """Computes and stores the average and the current value."""

    def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
        self.name, self.fmt, self.summary_type = name, fmt, summary_type
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def all_reduce(self, device):
        dtype = torch.float32 if device.type == "mps" else torch.float64
        total = torch.tensor([self.sum, self.count], dtype=dtype, device=device)
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()
        self.avg = self.sum / max(self.count, 1)

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)

    def summary(self):
        return "" if self.summary_type is Summary.NONE else f"{self.name} {self.avg:.3f}"


class ProgressMeter:
    def __init__(self, num_batches, meters, prefix=""):
        width = len(str(num_batches))
        self.batch_fmt = "[{:" + str(width) + "d}/" + str(num_batches) + "]"
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        say("\t".join([self.prefix + self.batch_fmt.format(batch), *map(str, self.meters)]))

    def display_summary(self):
        say(" ".join([" *", *filter(None, (meter.summary() for meter in self.meters))]))


# --- models, where torchvision is not installed ---------------------------------------------------


def create_model(arch, classes):
    if models is not None and arch in models.list_models():
        return models.get_model(arch, num_classes=classes)
    if arch not in RESNETS:
        known = "torchvision's" if models is not None else "all others need torchvision"
        raise SystemExit(f"no model {arch!r}; built in: {', '.join(RESNETS)}; {known}")
    return ResNet(*RESNETS[arch], classes)


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        return torch.relu(self.shortcut(x) + self.residual(x))


class ResNet(nn.Sequential):
    def __init__(self, width, blocks, classes):
        layers = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        inside = width
        for stage, count in enumerate(blocks):
            outside = width << stage
            for number in range(count):
                layers.append(BasicBlock(inside, outside, 2 if stage and not number else 1))
                inside = outside
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
        super().__init__(*layers)


RESNETS = {"resnet10": (16, (1, 1, 1, 1)), "resnet18": (64, (2, 2, 2, 2))}  # width, blocks a stage


if __name__ == "__main__":
    main()

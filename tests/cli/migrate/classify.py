"""Image classification on one or many GPUs."""

import argparse
import os

import torch
import torch.nn as nn
import torch.utils.data
import torch.utils.data.distributed
import torchvision.datasets as datasets
import torchvision.transforms as transforms
from torch.utils.data import Subset

parser = argparse.ArgumentParser(description="Training")
parser.add_argument("data", metavar="DIR", nargs="?", default="imagenet", help="path to dataset")
parser.add_argument("-j", "--workers", default=4, type=int)
parser.add_argument("-b", "--batch-size", default=256, type=int)
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("--distributed", action="store_true")
parser.add_argument("--evaluate", dest="evaluate", action="store_true")
parser.add_argument("--dummy", action="store_true", help="use fake data")


def main():
    args = parser.parse_args()
    worker(args.gpu, args)


def worker(gpu, args):
    model = nn.Linear(10, 10)
    device = torch.device("cuda")

    # Data loading code
    if args.dummy:
        print("=> Dummy data is used!")
        train_dataset = datasets.FakeData(1281167, (3, 224, 224), 1000, transforms.ToTensor())
        val_dataset = datasets.FakeData(50000, (3, 224, 224), 1000, transforms.ToTensor())
    else:
        traindir = os.path.join(args.data, "train")
        valdir = os.path.join(args.data, "val")
        normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])

        train_dataset = datasets.ImageFolder(
            traindir,
            transforms.Compose(
                [
                    transforms.RandomResizedCrop(224),
                    transforms.RandomHorizontalFlip(),
                    transforms.ToTensor(),
                    normalize,
                ]
            ),
        )

        val_dataset = datasets.ImageFolder(
            valdir,
            transforms.Compose(
                [
                    transforms.Resize(256),
                    transforms.CenterCrop(224),
                    transforms.ToTensor(),
                    normalize,
                ]
            ),
        )

    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
        val_sampler = torch.utils.data.distributed.DistributedSampler(
            val_dataset, shuffle=False, drop_last=True
        )
    else:
        train_sampler = None
        val_sampler = None

    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=True, sampler=train_sampler)

    val_loader = torch.utils.data.DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False,
        num_workers=args.workers, pin_memory=True, sampler=val_sampler)

    if args.evaluate:
        validate(val_loader, model, args)
        return

    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        for images, target in train_loader:
            images = images.to(device, non_blocking=True)
            model(images)
        validate(val_loader, model, args)


def validate(val_loader, model, args):
    for images, target in val_loader:
        model(images)
    if args.distributed and (len(val_loader.sampler) * args.world_size < len(val_loader.dataset)):
        aux_val_dataset = Subset(
            val_loader.dataset,
            range(len(val_loader.sampler) * args.world_size, len(val_loader.dataset)),
        )
        aux_val_loader = torch.utils.data.DataLoader(
            aux_val_dataset, batch_size=args.batch_size, shuffle=False, num_workers=args.workers
        )
        for images, target in aux_val_loader:
            model(images)


if __name__ == "__main__":
    main()

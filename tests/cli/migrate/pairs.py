import argparse
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms as T


class PairMatcher(Dataset):
    def __init__(self, root, train, download=False):
        super().__init__()
        self.dataset = datasets.MNIST(root, train=train, download=download)
        self.data = self.dataset.data.unsqueeze(1).clone()

    def __len__(self):
        return self.data.shape[0]

    def __getitem__(self, index):
        return self.data[index], self.data[random.randrange(len(self))], 0


def train(args, model, device, train_loader, epoch):
    for batch_idx, (images_1, images_2, targets) in enumerate(train_loader):
        model(images_1)


def test(model, device, test_loader):
    for images, targets in test_loader:
        model(images)


def main():
    parser = argparse.ArgumentParser(description="PyTorch Siamese network Example")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N")
    parser.add_argument("--test-batch-size", type=int, default=1000, metavar="N")
    parser.add_argument("--epochs", type=int, default=14, metavar="N")
    parser.add_argument("--no-cuda", action="store_true", default=False)
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")

    train_kwargs = {"batch_size": args.batch_size}
    test_kwargs = {"batch_size": args.test_batch_size}
    if use_cuda:
        cuda_kwargs = {"num_workers": 1, "pin_memory": True, "shuffle": True}
        train_kwargs.update(cuda_kwargs)
        test_kwargs.update(cuda_kwargs)

    train_dataset = PairMatcher("../data", train=True, download=True)
    train_loader = torch.utils.data.DataLoader(train_dataset, **train_kwargs)

    transform = T.Compose([T.ToTensor(), T.Normalize((0.1307,), (0.3081,))])
    test_dataset = datasets.MNIST("../data", train=False, transform=transform)
    test_loader = torch.utils.data.DataLoader(test_dataset, **test_kwargs)

    model = nn.Linear(1, 1)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, epoch)
        test(model, device, test_loader)


if __name__ == "__main__":
    main()

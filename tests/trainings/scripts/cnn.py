"""Trains a CNN on images that modules transform in the data set, with a module as loss."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Normalize(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, image):
        return (image - self.mean) / self.std


class RandomFlip(nn.Module):
    def forward(self, image):
        return image.flip(-1) if torch.rand(1).item() < 0.5 else image


class Images(Dataset):
    def __init__(self, num_images, transform):
        generator = torch.Generator().manual_seed(7)
        self.images = torch.rand(num_images, 3, 24, 24, generator=generator)
        self.labels = (self.images.mean((1, 2, 3)) > 0.5).long()
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(4),
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(48 * 16, 2)

    def forward(self, x):
        return self.head(self.dropout(self.features(x).flatten(1)))


def main():
    transform = nn.Sequential(RandomFlip(), Normalize([0.5, 0.5, 0.5], [0.3, 0.3, 0.3]))
    loader = DataLoader(Images(192, transform), batch_size=16, shuffle=True)
    model, criterion = Net(), nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    losses = []
    for _ in range(2):
        model.train()
        for images, labels in loader:
            with step(model):
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    finish(losses, model)


main()

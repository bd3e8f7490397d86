"""The network that embeds an image."""

from torch import Tensor, nn


class EmbeddingNet(nn.Module):
    """A small convolutional net from grey images of any size to points of a Euclidean space.

    Without its batch normalisation, batch-hard training moves all embeddings to one point.

    Args:
        embedding_dimension: Dimension of that space.
    """

    def __init__(self, embedding_dimension: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(4),
        )
        self.embedding = nn.Linear(32 * 4 * 4, embedding_dimension)

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (N, dimension) of images (N, 1, height, width)."""
        embeddings: Tensor = self.embedding(self.features(images).flatten(start_dim=1))
        return embeddings

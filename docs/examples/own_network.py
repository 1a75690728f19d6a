"""A network of one's own: python docs/examples/own_network.py, from any folder."""

import torch.nn as nn

from cl_lightning import run

SMALL = (
    "stream=split", "stream.tasks=3", "stream.n_train=500", "stream.n_val=100", "stream.n_test=200",
    "data.sources.mnist.train=3000", "data.sources.mnist.test=1000", "selection=none",
    "trainer.max_epochs=5", "trainer.lr=0.01", "figures=false",
)  # fmt: skip


class SmallConv(nn.Module):
    """Any module with forward(x): it is told the outputs (head), and lazy layers find the images' shape."""

    def __init__(self, head, channels: int = 8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LazyConv2d(channels, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(head.num_outputs)
        )

    def forward(self, x):
        return self.layers(x)


if __name__ == "__main__":
    backbone = "+backbone={_target_: own_network.SmallConv, channels: 4}"
    made = run("~backbone", backbone, "learner=er", *SMALL, quiet=True)
    print(made.accuracy.round(3))
    print(f"average accuracy {made.metrics['average_accuracy']:.3f}")

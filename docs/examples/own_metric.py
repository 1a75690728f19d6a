"""A number of one's own over tasks: python docs/examples/own_metric.py, from any folder.

It is logged to every logger, too: add logger=wandb, or logger=[csv,wandb].
"""

from cl_lightning import run
from cl_lightning.callbacks import StreamCallback

SMALL = (
    "stream=permuted", "stream.tasks=3", "stream.n_train=500", "stream.n_val=100", "stream.n_test=200",
    "data.sources.mnist.train=3000", "data.sources.mnist.test=1000", "selection=none",
    "trainer.max_epochs=5", "trainer.lr=0.01", "figures=false",
)  # fmt: skip


class Worst(StreamCallback):
    """The lowest accuracy on any task learned so far."""

    def on_evaluated(self, learner, learned, accuracies):
        if learned:
            self.log("worst", min(accuracies[:learned]))


if __name__ == "__main__":
    made = run("learner=finetune", "trainer.callbacks=[{_target_: own_metric.Worst}]", *SMALL, quiet=True)
    print(made.own)

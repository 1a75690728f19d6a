"""A learner of one's own: python docs/examples/own_learner.py, from any folder."""

from cl_lightning import run
from cl_lightning.learners import Learner

SMALL = (
    "stream=permuted", "stream.tasks=3", "stream.n_train=500", "stream.n_val=100", "stream.n_test=200",
    "data.sources.mnist.train=3000", "data.sources.mnist.test=1000", "selection=none",
    "trainer.max_epochs=10", "trainer.lr=0.01", "figures=false",
)  # fmt: skip


class Anchored(Learner):
    """Finetune, with a pull back to the weights of the last task."""

    def __init__(self, *, strength: float = 1.0, **base):
        super().__init__(**base)
        self.strength = strength

    def loss(self, c, batch):
        last = self.memory.get("last", [])  # none on the first task
        pull = sum((w - w_last).square().sum() for w, w_last in zip(c.network.parameters(), last))
        return super().loss(c, batch) + self.strength / 2 * pull

    def on_task_end(self, task):
        self.memory["last"] = [w.detach().clone() for w in self.network.parameters()]


if __name__ == "__main__":
    for strength in (0.0, 0.1):
        learner = f"+learner={{_target_: own_learner.Anchored, name: anchored, strength: {strength}}}"
        made = run("~learner", learner, *SMALL, quiet=True)
        print(f"strength {strength}: forgetting {made.metrics['forgetting']:.3f}")

#!/usr/bin/env bash
# A newcomer's first five tasks: bash docs/examples/first_day.sh, from any folder. It writes there: outputs/,
# compared.tex, published.md, own.npz and two modules. Nothing is downloaded, and nothing leaves the machine.
set -euo pipefail
examples="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# For a first look: few examples, one rate. Leave these words out for the settings that are the default.
small=(stream.n_train=300 stream.n_val=60 selection=none trainer.lr=0.01 trainer.max_epochs=5 figures=false)
digits=(stream=split stream.tasks=3 stream.n_test=100 data.sources.mnist.train=3000 data.sources.mnist.test=600)

echo "== 1. Compare learners, in a table for LaTeX: compared.tex"
python -m cl_lightning --multirun name=compared learner=finetune,er seed=0,1 "${digits[@]}" "${small[@]}"
python -m cl_lightning.report outputs/compared --latex >compared.tex

echo "== 2. Data of your own: arrays in a file"
python - <<'PYTHON'
import numpy

rng = numpy.random.default_rng(0)  # four kinds of stripes, in the place of yours
labels = rng.integers(0, 4, 2400)
stripes = numpy.sin(numpy.arange(12) * (1 + labels[:, None, None]) / 2) * numpy.ones((12, 1))
images = (0.5 + 0.3 * stripes + 0.1 * rng.random((2400, 12, 12)))[:, None].astype("float32")  # (n, 1, 12, 12)
numpy.savez(
    "own.npz", train_x=images[:2000], train_y=labels[:2000], test_x=images[2000:], test_y=labels[2000:]
)
PYTHON
python -m cl_lightning name=own_data '+data.sources.own={_target_: cl_lightning.data.sources.Arrays, file: own.npz}' \
  stream=split stream.source=own stream.tasks=null stream.n_test=150 learner=er "${small[@]}"

echo "== 3. A network of your own"
cat >first_network.py <<'PYTHON'
import torch.nn as nn


class Small(nn.Module):
    def __init__(self, head, units: int = 32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.LazyLinear(units), nn.ReLU(), nn.Linear(units, head.num_outputs)
        )

    def forward(self, x):
        return self.layers(x)
PYTHON
python -m cl_lightning name=own_network '~backbone' '+backbone={_target_: first_network.Small, units: 16}' \
  learner=er "${digits[@]}" "${small[@]}"

echo "== 4. A number of your own on Weights & Biases, offline"
cat >first_metric.py <<'PYTHON'
from cl_lightning.callbacks import StreamCallback


class Worst(StreamCallback):
    """The lowest accuracy on any task learned so far."""

    def on_evaluated(self, learner, learned, accuracies):
        if learned:
            self.log("worst", min(accuracies[:learned]))
PYTHON
python -m cl_lightning name=own_metric 'trainer.callbacks=[{_target_: first_metric.Worst}]' learner=er \
  logger=wandb logger.wandb.mode=offline "${digits[@]}" "${small[@]}"

echo "== 5. A published number beside ours: published.md"
if [ -d "${CL_LIGHTNING_DATA:-.}/mnist" ]; then # the paper's own data: a run of yours is a row, too
  python -m cl_lightning +experiment=gem_rotations data=real learner=finetune figures=false
fi
python -m cl_lightning.report paper=gem "$examples/../results/gem.json" outputs --markdown >published.md
grep '^| single |' published.md

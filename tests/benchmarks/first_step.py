"""A callback that says when the first block of mini-batches begins."""

import os
import sys
import time

import pytorch_lightning as pl


class FirstStep(pl.Callback):
    said = False

    def on_train_batch_start(self, *_: object) -> None:
        if not FirstStep.said:
            FirstStep.said = True
            print(
                f"first step after {time.time() - float(os.environ['CL_LIGHTNING_BEGAN']):.2f} s",
                file=sys.stderr,
            )

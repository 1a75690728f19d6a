"""A stream from a folder of images: python docs/examples/own_stream.py, from any folder.

It first draws a few images, a folder a class, where yours would lie: shapes/train/disc/0.png and so on.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from cl_lightning import run

PENS = {
    "disc": lambda pen, box: pen.ellipse(box, fill="white"),
    "frame": lambda pen, box: pen.rectangle(box, outline="white", width=2),
    "ring": lambda pen, box: pen.ellipse(box, outline="white", width=2),
    "square": lambda pen, box: pen.rectangle(box, fill="white"),
}


def draw(root: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 80), ("test", 20)):
        for name, pen in PENS.items():
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                image = Image.fromarray(rng.integers(0, 90, (20, 20), dtype=np.uint8))
                left, top = rng.integers(1, 8, 2).tolist()
                pen(ImageDraw.Draw(image), (left, top, left + 10, top + 10))
                image.save(folder / f"{number}.png")


if __name__ == "__main__":
    draw(Path("shapes"))
    made = run(
        "+data.sources.shapes={_target_: cl_lightning.data.sources.ImageFolder, root: ., folder: shapes}",
        "stream=split", "stream.source=shapes", "stream.tasks=null",  # as many tasks as the classes fill
        "stream.n_train=120", "stream.n_val=40", "learner=finetune", "selection=none", "trainer.lr=0.01",
        "trainer.max_epochs=20", "figures=false", quiet=True,
    )  # fmt: skip
    print([task["name"] for task in made.results["stream"]["tasks"]])
    print(made.accuracy.round(2))

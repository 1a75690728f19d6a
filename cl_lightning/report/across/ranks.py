"""How the choice of the experiment changes the ranks of learners: ACC, a line a learner over experiments
(Farquhar and Gal 2018)."""

from __future__ import annotations

from cl_lightning.report.across import Learners, known, mean_and_deviation
from cl_lightning.report.style import Figure, colour, legend_above, marker, panels


def figure(learners: Learners) -> Figure | None:
    """None where a learner ran twice in an experiment, with other settings."""
    found: dict[tuple[str, str], dict[str, list]] = {}
    for run in (run for runs in learners.values() for run in runs):
        head = run["stream"]["tasks"][0]["head"]["mode"].replace("_", " ")
        found.setdefault((run["name"], head), {}).setdefault(run["learner"], []).append(run)
    twice = [
        own for each in found.values() for own in each.values() if len({r["fingerprint"] for r in own}) > 1
    ]
    if twice:
        return None
    drawn, axes = panels(1, height=2.4)
    names = dict.fromkeys(learner for each in found.values() for learner in each)
    for place, learner in enumerate(sorted(names)):
        points = []
        for x, each in enumerate(found.values()):
            if values := known(run["metrics"]["average_accuracy"] for run in each.get(learner, ())):
                points.append((x + 0.04 * place, *mean_and_deviation(values)))
        if points:
            look = {"fmt": f"{marker(place)}-", "color": colour(place), "label": learner.replace("_", " ")}
            axes[0].errorbar(*zip(*points), **look)
    names_of = [f"{name.replace('_', ' ')}\n{head}".replace(" ", "\n") for name, head in found]
    axes[0].set_xticks(range(len(found)), names_of)
    axes[0].set(ylabel="ACC", ylim=(0, 1.02))
    legend_above(drawn, [learner.replace("_", " ") for learner in sorted(names)])
    return drawn

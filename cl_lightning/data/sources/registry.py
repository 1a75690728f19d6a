"""The data sets of a configuration, opened when a stream asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from cl_lightning.config.suggestions import nearest
from cl_lightning.data.sources.cache import Images, Substitute
from cl_lightning.errors import Refusal


class Sources(Mapping[str, Images]):
    """The data sets of a configuration by name. ``substitute`` names sources in whose place another is used;
    every result says so.

    Where the stand-in has more classes than the source it replaces, those with the most images are used, in
    their own order.
    """

    def __init__(
        self,
        known: Mapping[str, tuple[str, ...] | None],
        make: Callable[[str], Images],
        substitute: Mapping[str, str],
    ) -> None:
        # ``known``: names, with the classes where these are known before the source is opened.
        self.known, self.make, self.substitute = known, make, substitute
        self._open: dict[str, Images] = {}
        for name, other in substitute.items():
            if name not in known:
                raise Refusal(
                    f"data.substitute.{name} stands in for nothing: {name} is not among "
                    f"data.sources.{nearest(name, list(known))}"
                )
            if other not in known:
                raise Refusal(
                    f"data.substitute.{name}={other} is not among data.sources.{nearest(other, list(known))}"
                )

    def __getitem__(self, name: str) -> Images:
        if name not in self._open:
            if name not in self.known and name not in self.substitute:
                raise Refusal(
                    f"The stream asks for {name}, which is not among "
                    f"data.sources.{nearest(name, list(self.known))}"
                )
            other = self.substitute.get(name, name)
            images = self.make(other)
            self._open[name] = images if other == name else self.stand_in(images, name, other)
        return self._open[name]

    def stand_in(self, images: Images, name: str, other: str) -> Images:
        original_classes = self.known.get(name) or ()
        if original_classes and len(images.classes) > len(original_classes):
            counts = images.counts().tolist()
            largest = sorted(range(len(counts)), key=lambda c: -counts[c])
            images = images.subset(sorted(largest[: len(original_classes)]))
        return replace(images, name=name, substitute=Substitute(other, original_classes))

    def __iter__(self) -> Iterator[str]:
        return iter({**self.known, **self.substitute})

    def __len__(self) -> int:
        return len({**self.known, **self.substitute})

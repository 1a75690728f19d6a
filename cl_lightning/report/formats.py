"""Tables for other programs: Markdown, CSV, LaTeX, JSON. A cell is text; ``0.8 ± 0.1`` is a mean with its
error."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence

NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?")
ERROR = " ± "
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "†": r"$^\dagger$", "δ": r"$\delta$", "±": r"$\pm$", "→": r"$\to$",
}  # fmt: skip
Rows = Sequence[Sequence[str]]
Sheet = tuple[list[str], list[list[str]]]  # heads and rows


def markdown(heads: Sequence[str], rows: Rows) -> str:
    r"""
    >>> print(markdown(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\|y |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(in_markdown, line))} |" for line in lines)


def in_markdown(cell: str) -> str:
    """A cell as Markdown shows it: nothing in it parts cells, marks text or is HTML."""
    return re.sub(r"([\\|`*<])", r"\\\1", " ".join(cell.split()))


def latex(heads: Sequence[str], rows: Rows) -> str:
    r"""A table for the package booktabs; numbers to the right.

    >>> print(latex(["learner", "ACC"], [["a_b", "0.8 ± 0.1"], ["c", "-0.1"]]))
    \begin{tabular}{lr}
    \toprule
    learner & ACC \\
    \midrule
    a\_b & $0.8 \pm 0.1$ \\
    c & $-0.1$ \\
    \bottomrule
    \end{tabular}
    """
    columns = ["r" if all(is_number(c) for c in cells if c) else "l" for cells in zip(*rows)]
    head, *body = (f"{' & '.join(map(in_latex, line))} \\\\" for line in (heads, *rows))
    begin = [f"\\begin{{tabular}}{{{''.join(columns)}}}", "\\toprule", head, "\\midrule"]
    return "\n".join([*begin, *body, "\\bottomrule", "\\end{tabular}"])


def is_number(cell: str) -> bool:
    """
    >>> is_number("0.8 ± 0.1"), is_number("-"), is_number("x")
    (True, True, False)
    """
    return cell == "-" or all(NUMBER.fullmatch(part) for part in cell.split(ERROR))


def in_latex(cell: str) -> str:
    if is_number(cell) and cell != "-":
        return f"${cell.replace(ERROR, f' {chr(92)}pm ')}$"
    return "".join(LATEX.get(char, char) for char in " ".join(cell.split()))


def as_csv(heads: Sequence[str], rows: Rows) -> str:
    """Errors are columns of their own. No cell is a formula to a spreadsheet, which would run it.

    >>> as_csv(["learner", "ACC"], [["=1+1", "0.8 ± 0.1"]]).splitlines()
    ['learner,ACC,ACC ±', "'=1+1,0.8,0.1"]
    """
    text = io.StringIO()
    lines = ([in_csv(cell) for cell in line] for line in errors_apart(heads, rows))
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().rstrip("\n")


def in_csv(cell: str) -> str:
    cell = " ".join(cell.split())
    harmless = NUMBER.fullmatch(cell) or cell == "-" or not cell.startswith(("=", "+", "-", "@"))
    return cell if harmless else f"'{cell}"


def as_json(heads: Sequence[str], rows: Rows) -> str:
    """A mapping a row; numbers as numbers, null where there is none.

    >>> as_json(["learner", "ACC"], [["gem", "0.8 ± 0.1"], ["er", "-"]]).split()[:4]
    ['[', '{', '"learner":', '"gem",']
    """
    heads, *body = errors_apart(heads, rows)
    return json.dumps([dict(zip(heads, map(value_of, line))) for line in body], indent=1, ensure_ascii=False)


def value_of(cell: str) -> float | str | None:
    """
    >>> value_of("3"), value_of("0.5"), value_of("-"), value_of("nan")
    (3, 0.5, None, 'nan')
    """
    if NUMBER.fullmatch(cell):
        return int(cell) if cell.lstrip("+-").isdigit() else float(cell)
    return None if cell in ("", "-") else cell


def errors_apart(heads: Sequence[str], rows: Rows) -> list[list[str]]:
    """Heads and rows with a column of its own for the errors of a column that has some."""
    having = {place for row in rows for place, cell in enumerate(row) if ERROR in cell and is_number(cell)}
    lines: list[list[str]] = [[], *([] for _ in rows)]
    for place, head in enumerate(heads):
        lines[0] += [head, f"{head} ±"] if place in having else [head]
        for line, row in zip(lines[1:], rows):
            line += row[place].partition(ERROR)[::2] if place in having else [row[place]]
    return lines


FORMATS: dict[str, Callable[[Sequence[str], Rows], str]] = {
    "markdown": markdown,
    "csv": as_csv,
    "latex": latex,
    "json": as_json,
}

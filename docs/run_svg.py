#!/usr/bin/env python3
"""Runs README's first command and writes what it prints as an animated picture, `docs/run.svg`.

    cargo build && python3 docs/run_svg.py target/debug/conjure
"""

import html
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, LINE_HEIGHT, COLUMNS = 880, 19, 104
COLOURS = {"model": "#8ab4f8", "calls": "#fdd663", "result": "#9aa0a6", "skill": "#81c995"}


def first_command() -> list[str]:
    """The command as README has it, without `cargo run --`."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if line.startswith("cargo run -- run "))
    return [line.removeprefix("cargo run -- ")]


def record(program: str, command: str) -> list[tuple[float, str]]:
    """What the run prints, each line with its second."""
    with tempfile.TemporaryDirectory() as data:
        start = time.monotonic()
        process = subprocess.Popen(
            f"{program} {command} --data {data}",
            shell=True,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout
        home = "~/.local/share/conjure"
        lines = [(time.monotonic() - start, line.rstrip().replace(data, home)) for line in process.stdout]
        if process.wait() != 0:
            sys.exit("the run failed:\n" + "\n".join(line for _, line in lines))
    return lines


def wrap(text: str) -> list[str]:
    """Lines that fit, the further ones indented."""
    pieces = [text[:COLUMNS]]
    rest = text[COLUMNS:]
    while rest:
        pieces.append("    " + rest[: COLUMNS - 4])
        rest = rest[COLUMNS - 4 :]
    return pieces


def colour(line: str) -> str:
    word = re.match(r"\[?[\d. s]*\]?\s*(\w+)", line)
    return COLOURS.get(word.group(1), "#e8eaed") if word else "#e8eaed"


def svg(command: str, lines: list[tuple[float, str]]) -> str:
    shown = [(0.0, piece, "#ffffff") for piece in wrap(f"$ conjure {command}")]
    # Slow enough to be read: each line half a second behind the one before.
    for place, (_, line) in enumerate(lines):
        shown += [(1.2 + place * 0.5, piece, colour(line)) for piece in wrap(line)]
    height = LINE_HEIGHT * (len(shown) + 2)
    rows = "\n".join(
        f'<text x="16" y="{LINE_HEIGHT * (row + 2)}" fill="{fill}" style="animation-delay:{delay:.1f}s" xml:space="preserve">'
        f"{html.escape(text)}</text>"
        for row, (delay, text, fill) in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="A run of conjure">\n'
        "<style>text{font:13px/1.4 ui-monospace,Menlo,Consolas,monospace;opacity:0;animation:show .2s forwards}"
        "@keyframes show{to{opacity:1}}"
        "@media (prefers-reduced-motion:reduce){text{animation:none;opacity:1}}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#202124"/>\n{rows}\n</svg>\n'
    )


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else "conjure"
    (command,) = first_command()
    (ROOT / "docs/run.svg").write_text(svg(command, record(program, command)), encoding="utf-8")


if __name__ == "__main__":
    main()

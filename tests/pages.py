"""The pages for readers, and the commands in them."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = tuple(
    sorted(
        path.relative_to(ROOT).as_posix()
        for path in (
            ROOT / "README.md",
            *ROOT.glob("docs/*.md"),
            *ROOT.glob("[cep]*/**/README.md"),
        )
        if path.relative_to(ROOT).parts[0]
        in ("README.md", "docs", "engines", "plugins", "calib_data")
    )
)
FENCE = re.compile(
    r"(?:<!-- (?P<marker>[^\n]*) -->\n)?```(?P<language>sh|python|js)\n(?P<text>.*?)```",
    re.DOTALL,
)

SCRIPT = re.compile(
    r"python (?P<path>(?:benchmarks|scripts|calib_data)/[a-z_/]+\.py)(?P<words>[^`#\n]*)"
)


@dataclass(frozen=True)
class Block:
    """A block of commands or code; `marker`, the comment before it, says what runs it, or why nothing does."""

    page: str
    line: int
    language: str
    text: str
    marker: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of shell commands, Python and JavaScript of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text"))
        yield Block(page, line, found["language"], found["text"], found["marker"] or "")


def block_of(page: str, test: str) -> str:
    """The text of the one block of a page that a test runs."""
    (block,) = (each for each in blocks(page) if each.marker == f"test: {test}")
    return block.text


def commands_of(page: str, test: str) -> list[list[str]]:
    """The words of the commands in the blocks of a page that a test runs."""
    marked = [each for each in blocks(page) if each.marker == f"test: {test}"]
    assert marked
    return [words for block in marked for words in star_export_commands(block)]


def star_export_commands(block: Block) -> Iterator[list[str]]:
    """Yield the words behind `star-export` of each of its commands; variables of the shell have some value."""
    if block.language != "sh":
        return
    text = (
        block.text.replace("\\\n", " ")
        .replace("$rho", "0.7")
        .replace("$precision", "fp16")
    )
    for line in text.splitlines():
        # a comment, or a file for the output
        words = shlex.split(re.sub(r"\s[#>].*", "", line))
        if words and words[0] == "star-export":
            yield words[1:]


def script_commands() -> dict[tuple[str, ...], set[str]]:
    """The flags that the pages give to each script, by its path and its verb."""
    commands = defaultdict[tuple[str, ...], set[str]](set)
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
        for command in SCRIPT.finditer(text):
            words = command["words"].split()
            verb = [word for word in words[:1] if word.isalpha() and word.islower()]
            flags = {word for word in words if word.startswith("--")}
            commands[(command["path"], *verb)] |= flags
    return commands

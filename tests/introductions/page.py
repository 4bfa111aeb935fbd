"""docs/introductions.md as data: its rows, the names that their blocks share, and the numbers of their texts."""

import ast
import builtins
import functools
import re
import symtable
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "introductions.md"
_PART = re.compile(r"^(?P<level>#{1,4}) (?P<title>.+?)$(?P<body>.*?)(?=^#{1,4} |\Z)", re.M | re.S)
_BLOCK = re.compile(r"```(?P<language>python|sh)\n(?P<lines>.*?)```", re.S)


@dataclass(frozen=True)
class Part:
    """What stands below one heading: a row, or the opening of a section.

    Args:
        title: The heading, without its number.
        number: That of a row; 0 for an opening.
        section: Title of the section around it.
        text: What is written, without the block.
        language: `"python"` or `"sh"`; an empty string where there is no block.
        code: The lines of the block.
    """

    title: str
    number: int
    section: str
    text: str
    language: str
    code: str

    @property
    def name(self):
        """The name of the row's check after `row_`, such as `the_context_vector`."""
        return re.sub(r"\W+", "_", self.title.lower()).strip("_")


@functools.cache
def parts():
    """Returns the openings and rows of the page, in their order."""
    found, section = [], ""
    for part in _PART.finditer(PAGE.read_text(encoding="utf-8")):
        number, _, title = part["title"].partition(". ") if part["level"] == "####" else ("0", "", part["title"])
        section = section if int(number) else title
        blocks = list(_BLOCK.finditer(part["body"]))
        assert len(blocks) == 1 or not blocks and not int(number), f"{title} has {len(blocks)} blocks"
        language, code = blocks[0].groups() if blocks else ("", "")
        found.append(Part(title, int(number), section, _BLOCK.sub("", part["body"]), language, code))
    return tuple(found)


def rows():
    """Returns the rows by the names of their checks."""
    found = {part.name: part for part in parts() if part.number}
    repeated = Counter(part.name for part in parts() if part.number) - Counter([*found])
    assert not repeated, f"rows of one name: {[*repeated]}"
    return found


def openings(part):
    """Returns what a reader runs before a row: the block of the page, and that of the section."""
    own = [each for each in parts() if not each.number and each.section == part.section]
    return [parts()[0], *(each for each in own if each is not parts()[0])]


def binds(code):
    """Returns the names that a block binds, outside functions and comprehensions."""
    return set().union(*(bound for _, bound in _uses(code)))


def reads(code):
    """Returns the names that a block reads before it binds them, without those of Python."""
    known, unknown = set(dir(builtins)), set()
    for read, bound in _uses(code):
        unknown |= read - known
        known |= bound
    return unknown


def _uses(code):
    """Yields the names that each statement reads, and those that it binds, in the order in which they run."""
    for statement in _statements(ast.parse(code).body):
        tokens = symtable.symtable(ast.unparse(statement), PAGE.name, "exec")
        bound = {each.get_name() for each in tokens.get_symbols() if each.is_assigned() or each.is_imported()}
        read = {each.get_name() for each in tokens.get_symbols() if each.is_referenced()} | _read_inside(tokens)
        yield read | (bound if isinstance(statement, ast.AugAssign) else set()), bound


def _read_inside(tokens):
    """Returns the names that the functions and comprehensions of a statement read from outside themselves."""
    inside = tokens.get_children()
    own = {each.get_name() for scope in inside for each in scope.get_symbols() if each.is_global()}
    return own.union(*map(_read_inside, inside))


def _statements(body):
    """Yields statements in their order; of a loop first its head, then what is inside."""
    for statement in body:
        if isinstance(statement, ast.For):
            yield ast.fix_missing_locations(ast.Assign([statement.target], statement.iter))
            yield from _statements(statement.body)
        elif isinstance(statement, ast.While):
            yield ast.Expr(statement.test)
            yield from _statements(statement.body)
        else:
            yield statement


_IS_NO_CLAIM = re.compile(
    r"`[^`]*`|\[[^\]]*\]\([^)]*\)"  # code, and links
    r"|\b\w+ (?:19|20)\d\d\b"  # citations, such as Cho 2014
    r"|[_^]\{[^}]*\}|[_^]\w+|\d+\^"  # subscripts, exponents and their bases
    r"|[+−/·] ?\d+|\d+ ?[+−/·]"  # operands
    r"|(?<=[a-zA-Z])\d+|\b\d+[a-df-z]"  # names such as T5, and coefficients such as 2j
)
_NUMBER = re.compile(r"(?P<digits>\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|\.\d+)(?P<millions> million)?")
_WORDS = {"four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "hundred": 100}


def claims(text):
    """Returns the numbers that a text claims, as they are written; words from "four" on count, too.

    Not those of code, links, citations, subscripts, exponents and names, nor the operands in a formula, which stand
    beside an operator: of "3·n² = 75, 1/√d_k, α (1 − α)" it is 75 alone.
    """
    text = _IS_NO_CLAIM.sub(" ", text)
    for word, number in _WORDS.items():
        text = re.sub(rf"\b{word}\b", str(number), text)
    return [found[0].rstrip(",") for found in _NUMBER.finditer(text)]


def stands_in(claim, text):
    """Returns whether a number stands in a text, rounded as it is written in the claim."""
    found = _NUMBER.match(claim)
    unit = 1e6 if found["millions"] else 1
    written = found["digits"].replace(",", "")
    if "e" in written:
        form = f".{len(written.partition('e')[0].partition('.')[2])}e"
    else:
        form = f".{len(written.partition('.')[2])}f"
    return any(f"{number / unit:{form}}" == f"{float(written):{form}}" for number in numbers(text))


def numbers(text):
    """Returns all numbers in a text."""
    plain = re.sub(r"(?<=\d)[,_](?=\d{3}(?!\d))", "", text)
    return [float(number) for number in re.findall(r"(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", plain)]

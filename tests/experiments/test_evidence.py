"""The committed evidence: that it is listed, whole and small."""

import re

from support.every import every

from experiments.__main__ import EVIDENCE
from experiments.catalog import NAMES, get_experiment

PAGES = sorted(path.stem for path in EVIDENCE.glob("*.md") if path.stem != "index")
LARGEST = 200_000


def test_pages_are_whole_and_the_index_links_them_all():
    index = (EVIDENCE / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:\[`(\w+)`\]\((\w+)\.md\)|`(\w+)`) \|", index, re.MULTILINE)
    assert [linked or plain for linked, _, plain in rows] == list(NAMES)
    assert sorted(target for _, target, _ in rows if target) == PAGES
    assert PAGES
    with every() as failures:
        for name in PAGES:
            page, plot = ((EVIDENCE / f"{name}.{suffix}").read_text(encoding="utf-8") for suffix in ("md", "svg"))
            with failures.of(name):
                assert page.startswith(f"# {name}: {get_experiment(name).question}") and f"({name}.svg)" in page
                assert f"`python -m experiments {name} --" in page and "at commit `" in page and "+`" not in page
                assert len(plot) < LARGEST

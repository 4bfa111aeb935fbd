"""What MkDocs calls while it builds the site: pages that are made from the code, and checks that can fail a build.

Two processes make pages, side by side: one runs the notebooks of docs/learn, the other describes layers, commands and
models. What they made is kept in runs/docs until a file that it is made of changes.
"""

import fnmatch
import hashlib
import posixpath
import shutil
import subprocess
import sys
import time
from pathlib import Path

from generate import equations, ideas, links, order, progress, repository
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = repository.ROOT
MADE = ROOT / "runs" / "docs"
# What pages are made of, beside the package.
SOURCES = ("zoo", "training", "export", "experiments", "docs/generate")
MEASURED = tuple(f"results/{name}.csv" for name in ("translation", "classification", "language_models"))
MAKERS = {
    "lookup": ("docs/generate/lookup.py", (*MEASURED, "benchmarks")),
    "learn": ("docs/generate/notebooks.py", ("docs",)),
}
LOOK_UP = "look-up"
COMMANDS = f"{LOOK_UP}/commands/*"


def _key(others):
    """Returns a sum of everything that pages are made of."""
    digest = hashlib.sha256()
    for name in (*SOURCES, *others):
        place = ROOT / name
        for path in sorted([*place.rglob("*.py"), *place.rglob("*.md")]) if place.is_dir() else [place]:
            if path.exists():
                digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _start(name):
    """Starts making pages, unless they are there already; returns the process or `None`."""
    script, others = MAKERS[name]
    key, folder = MADE / f"{name}.key", MADE / name
    if key.exists() and key.read_text() == _key(others):
        return None
    key.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if name == "learn":
        shutil.rmtree(ROOT / "runs" / "learn", ignore_errors=True)  # what notebooks train, and would go on with
    notebooks = [str(path.relative_to(ROOT)) for path in _that_run()] if name == "learn" else []
    with open(MADE / f"{name}.log", "w", encoding="utf-8") as log:
        return subprocess.Popen([sys.executable, script, str(folder), *notebooks], cwd=ROOT, stdout=log, stderr=log)


def _that_run():
    """Returns the notebooks, and the pages whose examples are run."""
    pages = [path for path in sorted(ROOT.glob("docs/**/*.md")) if "```python" in path.read_text("utf-8")]
    elsewhere = ("docs/introductions.md", "docs/evidence/")  # run by the tests; written by a command
    pages = [path for path in pages if not path.relative_to(ROOT).as_posix().startswith(elsewhere)]
    return [*sorted(ROOT.glob("docs/learn/*.py")), *pages]


def _wait(processes):
    """Waits for all processes, and shows what they make, a line for each page that takes long."""
    shown = dict.fromkeys(processes, 0)
    running = True
    while running:
        running = any(process.poll() is None for process in processes.values())
        for name in processes:
            lines = [line for line in _log(name).split("\n")[:-1] if line.startswith(progress.MARK)]
            for line in lines[shown[name] :]:
                print(line, file=sys.stderr, flush=True)
            shown[name] = len(lines)
        if running:
            time.sleep(0.5)


def _log(name):
    return (MADE / f"{name}.log").read_text("utf-8", errors="replace")


def _end(name, process):
    if process.returncode:
        raise PluginError(f"{MAKERS[name][0]} failed:\n{_log(name)[-6000:]}")
    (MADE / f"{name}.key").write_text(_key(MAKERS[name][1]))


def on_files(files, config):
    """Adds the pages that are made, and those of documents outside docs/, and completes the navigation."""
    processes = {name: process for name in MAKERS if (process := _start(name))}
    for path, page in repository.DOCUMENTS.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    _wait(processes)
    for name, process in processes.items():
        _end(name, process)
    for name in MAKERS:
        for path in sorted((MADE / name).rglob("*")):
            if path.is_file():
                uri = posixpath.join(LOOK_UP if name == "lookup" else name, path.relative_to(MADE / name).as_posix())
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    sources = {}
    for file in files.documentation_pages():
        repository.relink(file.content_string, _path(file.src_uri), file.src_uri, sources)
    for path, page in sources.items():
        if page.endswith(".md"):
            files.append(File.generated(config, page, content=repository.source_page(path)))
        else:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    pages = [file.src_uri for file in files.documentation_pages() if not file.src_uri.startswith("source/")]
    if missing := set(config.extra["words"]) - set(pages):
        raise PluginError(f"mkdocs.yml has words for pages that are not there: {', '.join(sorted(missing))}.")
    config.nav = _complete(config.nav, sorted(pages), _named(config.nav))
    return files


def _path(uri):
    """Returns the path in the repository of the document that a page is."""
    documents = {page: path for path, page in repository.DOCUMENTS.items()}
    return documents.get(uri, f"{repository.DOCS}/{uri}")


def _named(nav):
    """Returns the pages that the navigation names."""
    entries = nav.values() if isinstance(nav, dict) else nav
    return {name for entry in entries for name in ([entry] if isinstance(entry, str) else _named(entry))}


def _complete(nav, pages, named):
    """Returns the navigation with each pattern replaced by the pages that nothing names before."""
    done = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, content),) = entry.items()
            content = content if isinstance(content, str) else _complete(content, pages, named)
            done += [{title: content}] if content else []
        elif entry == f"{ideas.LAYERS}/*":
            done += ideas.navigation()
            named.update(_named(ideas.navigation()))
        elif "*" in entry:
            matching = [page for page in fnmatch.filter(pages, entry) if page not in named]
            if entry == COMMANDS:
                matching.sort(key=lambda page: order.by_use(Path(page).name.removesuffix(".md")))
            named.update(matching)
            done += matching
        else:
            done.append(entry)
    return done


def on_page_markdown(markdown, page, config, files):
    """Adds the words by which a search finds a page, includes other documents' blocks, and relinks links to pages."""
    uri = page.file.src_uri
    if words := config.extra["words"].get(uri):
        page.meta["tags"] = words
    if uri.startswith((f"{LOOK_UP}/", "source/")) and uri != f"{LOOK_UP}/index.md":
        return markdown
    text = repository.include(markdown)
    if not uri.startswith("learn/"):
        text = repository.indent_lists(text)
    return repository.relink(text, _path(uri), uri, {})


def on_page_content(html, page, config, files):
    """Draws equations."""
    return equations.as_mathml(html)


def on_post_build(config):
    """Fails the build for links that lead nowhere, and for anything that a page would fetch from elsewhere."""
    if errors := links.problems(Path(config.site_dir)):
        raise PluginError("\n".join(errors))

"""The book: book.py --mdbook PROGRAM. It is built, and each link of its pages leads to something. Its pages ask no other server."""

import html.parser
import shutil
from pathlib import Path
from urllib.parse import unquote

from common import ROOT, flag, run, scratch

# Pages that are copies of others.
COPIES = {"404.html", "print.html", "toc.html", "index.html"}


class Links(html.parser.HTMLParser):
    """The anchors and the links of a page, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe") and found.get("src"):
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") != "canonical" and found.get("href"):
            self.loads.append(found["href"])


def dead(directory):
    """Returns the links of all pages that lead nowhere, and how many were checked."""
    pages = {path: Links(path.read_text()) for path in directory.rglob("*.html")}
    wrong, checked = [], 0
    for path, page in pages.items():
        if path.name in COPIES and path.parent == directory:
            continue
        for target in page.links + page.loads:
            if target.startswith(("http://", "https://", "mailto:")):
                if target in page.loads:
                    wrong.append(f"{path.relative_to(directory)} loads {target}")
                continue
            checked += 1
            name, _, anchor = target.partition("#")
            file = (path.parent / unquote(name)).resolve() if name else path
            if not file.is_file() or (anchor and file in pages and unquote(anchor) not in pages[file].anchors):
                wrong.append(f"{path.relative_to(directory)}: {target}")
    return wrong, checked


def sources():
    """Returns the pages of docs/ that the book must have."""
    found = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "SUMMARY.md"]
    assert len(found) > 50, found
    return found


with scratch() as name:
    directory = Path(name).resolve() / "book"
    printed = run(flag("mdbook"), "build", "--dest-dir", directory, ROOT)
    assert "WARN" not in printed and "ERROR" not in printed, printed
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in sources()]
    pages = [path.with_name("index.html") if path.name == "README.html" else path for path in pages]
    missing = [str(path) for path in [*pages, Path("introduction.html"), Path("changes.html")] if not (directory / path).is_file()]
    assert not missing, f"pages that the book lacks: {missing}"
    wrong, checked = dead(directory)
    assert checked > 2_000, f"links were not found: {checked}"
    assert not wrong, "dead links:\n" + "\n".join(wrong[:50])

    # A dead link, a dead anchor and an image of another server are seen.
    page = directory / "alerts.html"
    page.write_text(page.read_text().replace("</main>", '<a href="none.html">a</a><a href="metrics.html#none">b</a><img src="https://example.org/c.png"></main>', 1))
    wrong, _ = dead(directory)
    assert len(wrong) == 3, wrong
    shutil.rmtree(directory)

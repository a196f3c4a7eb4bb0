//! The links of the documents, and the table of contents of the book.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn links_and_paths_in_documents_exist() -> Result<()> {
    let root = crate::root();
    let documents = documents(&root)?;
    ensure!(documents.len() > 60, "documents were not found");
    let mut anchors = BTreeMap::new();
    let (mut dead, mut checked, mut to_headings) = (Vec::new(), 0, 0);
    for document in &documents {
        let text = std::fs::read_to_string(document)?;
        for (target, anchor) in targets(&text, document, &root) {
            checked += 1;
            let shown = format!("{}: {}", document.display(), target.display());
            if !target.exists() {
                dead.push(shown);
            } else if let Some(anchor) = anchor.filter(|_| target.extension().is_some_and(|found| found == "md")) {
                to_headings += 1;
                if !anchors.contains_key(&target) {
                    anchors.insert(target.clone(), headings(&std::fs::read_to_string(&target)?));
                }
                if !anchors.get(&target).is_some_and(|headings: &BTreeSet<String>| headings.contains(&anchor)) {
                    dead.push(format!("{shown}#{anchor}"));
                }
            }
        }
    }
    ensure!(checked > 300 && to_headings > 30, "links were not found: {checked}, {to_headings} to headings");
    ensure!(dead.is_empty(), "dead:\n{}", dead.join("\n"));
    Ok(())
}

#[test]
fn each_page_is_in_the_book_once() -> Result<()> {
    let root = crate::root();
    let summary = root.join(SUMMARY);
    let mut pages: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (target, _) in targets(&std::fs::read_to_string(&summary)?, &summary, &root) {
        *pages.entry(target).or_default() += 1;
    }
    let twice: Vec<_> = pages.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twice.is_empty(), "pages that the book has twice: {twice:?}");
    // scripts/book-pages adds the decisions, which their own table of contents lists.
    let decisions = root.join("docs/decisions/README.md");
    for (target, _) in targets(&std::fs::read_to_string(&decisions)?, &decisions, &root) {
        pages.entry(target).or_insert(1);
    }
    let missing: Vec<_> = documents(&root.join("docs"))?
        .into_iter()
        .filter(|page| *page != plain(&summary) && !pages.contains_key(page))
        .collect();
    ensure!(missing.is_empty(), "pages that {SUMMARY} lacks: {missing:?}");
    Ok(())
}

/// Returns the documents of a directory, and with the root those of `docs`, too.
fn documents(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut directories = vec![directory.to_owned()];
    let is_root = directory.join("docs").is_dir();
    if is_root {
        directories.push(directory.join("docs"));
    }
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() && directory.components().any(|part| part == Component::Normal("docs".as_ref())) {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(plain(&path));
            }
        }
    }
    Ok(found)
}

/// Returns the targets of links with their anchors, and the paths `crates/..` in backticks, relative to the root.
fn targets(text: &str, document: &Path, root: &Path) -> Vec<(PathBuf, Option<String>)> {
    let base = document.parent().unwrap_or(root);
    let text = without_code_blocks(text);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.contains("://"));
    let links = links.map(|link| match link.split_once('#') {
        Some(("", anchor)) => (plain(document), Some(anchor.to_owned())),
        Some((path, anchor)) => (plain(&base.join(path)), Some(anchor.to_owned())),
        None => (plain(&base.join(link)), None),
    });
    let paths = text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/") && !code.contains(' '));
    links.chain(paths.map(|path| (plain(&root.join(path)), None))).collect()
}

/// Returns a text without its blocks of code, in which brackets are no links.
fn without_code_blocks(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// Returns the anchors of the headings of a document: lower case, without punctuation, with hyphens for spaces; a number follows the second one.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let text = without_code_blocks(text);
    for heading in text.lines().filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim();
        // Of a link in a heading, the text counts.
        let shown: String =
            heading.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
        let shown = if heading.contains("](") { shown } else { heading.to_owned() };
        let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let anchor: String = shown.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-");
        let numbered = (1_usize..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// Returns a path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn dead_links_are_found() {
    let text = "[a](x.md#y) [b](https://z) [c](#d) `crates/nowhere` `cargo crates/x`\n```rust\nlist[0](y)\n```\n";
    let found = targets(text, Path::new("/r/docs/d.md"), Path::new("/r"));
    let expected = [("/r/docs/x.md", Some("y")), ("/r/docs/d.md", Some("d")), ("/r/crates/nowhere", None)];
    assert_eq!(found, expected.map(|(path, anchor)| (PathBuf::from(path), anchor.map(str::to_owned))));
}

#[test]
fn headings_have_anchors() -> Result<()> {
    let text = "# Back up, and *restore*\n```sh\n# no heading\n```\n## `Ready`?\n## `Ready`?\n";
    let found = headings(text);
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["back-up-and-restore", "ready", "ready-1"]);
    headings("").is_empty().then_some(()).context("an empty document has no headings")
}

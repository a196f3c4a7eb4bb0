//! Files that the documents speak of exist.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

#[test]
fn links_and_paths_in_documents_lead_somewhere() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = Vec::new();
    for directory in ["", "docs", "docs/patterns", "docs/decisions"] {
        for entry in std::fs::read_dir(root.join(directory))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    ensure!(documents.len() > 10, "documents were not found");
    let mut dead = Vec::new();
    let mut checked = 0;
    for document in &documents {
        let text = std::fs::read_to_string(document)?;
        for target in targets(&text, document, &root) {
            checked += 1;
            if !target.exists() {
                dead.push(format!("{}: {}", document.display(), target.display()));
            }
        }
    }
    ensure!(checked > 30, "links were not found");
    ensure!(dead.is_empty(), "dead:\n{}", dead.join("\n"));
    Ok(())
}

/// What links lead to, from where the document is, and what stands as `crates/..` in backticks, from the root.
fn targets(text: &str, document: &Path, root: &Path) -> Vec<PathBuf> {
    let base = document.parent().unwrap_or(root);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    let links = links.map(|link| base.join(link.split('#').next().unwrap_or(link)));
    let paths = text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/") && !code.contains(' '));
    links.chain(paths.map(|path| root.join(path))).collect()
}

#[test]
fn the_check_itself_can_fail() {
    let text = "[a](x.md#y) [b](https://z) [c](#d) `crates/nowhere` `cargo crates/x`";
    let found = targets(text, Path::new("/r/docs/d.md"), Path::new("/r"));
    assert_eq!(found, [PathBuf::from("/r/docs/x.md"), PathBuf::from("/r/crates/nowhere")]);
}

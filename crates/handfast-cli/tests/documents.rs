//! Compares the documents with the files and the types that they name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

#[path = "documents/links.rs"]
mod links;
#[path = "documents/metrics.rs"]
mod metrics;

/// Returns the directory of the repository.
fn root() -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_directory.ancestors().nth(2).unwrap_or(crate_directory).to_owned()
}

/// Names that no type may have: each is a private term where the field has its own.
const COINAGES: [&str; 15] = [
    "Doubts", "Ending", "Fate", "Going", "Images", "InTurn", "Judging", "Long", "Own", "Place", "Room", "Taken",
    "Through", "Told", "Whole",
];

/// Names that no function and no variable may have, for the same reason.
const COINED_WORDS: [&str; 7] = ["beside", "fate", "in_turns", "judged", "keeper", "strangers", "told"];

/// The declaration of a type in the source of a crate.
#[derive(Debug, PartialEq)]
struct TypeDeclaration {
    name: String,
    is_public: bool,
}

#[test]
fn each_type_in_the_glossary_is_declared_once() -> Result<()> {
    let root = root();
    let glossary = std::fs::read_to_string(root.join("docs/glossary.md"))?;
    let named = glossary_types(&glossary);
    ensure!(named.len() > 10, "types were not found in the glossary");
    let types = all_types(&root)?;
    let public: Vec<_> = types.iter().filter(|(_, declaration)| declaration.is_public).collect();
    let mut wrong = Vec::new();
    for (noun, name) in named {
        let (directory, unqualified) = match name.split_once("::") {
            Some((library, unqualified)) => (root.join("crates").join(library.replace('_', "-")), unqualified),
            None => (root.join("crates"), name.as_str()),
        };
        let is_named = |path: &Path, found: &str| path.starts_with(&directory) && found == unqualified;
        let count = public.iter().filter(|(path, declaration)| is_named(path, &declaration.name)).count();
        if count != 1 {
            wrong.push(format!("{noun}: {count} public types are named {name}"));
        }
    }
    ensure!(wrong.is_empty(), "docs/glossary.md:\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_noun_that_is_the_name_of_a_public_type_names_the_type() -> Result<()> {
    let root = root();
    let glossary = std::fs::read_to_string(root.join("docs/glossary.md"))?;
    let mut types = Vec::new();
    for library in ["handfast-store", "handfast-txn", "handfast-patterns", "handfast-counters"] {
        types.extend(root_types(&root.join("crates").join(library))?);
    }
    ensure!(types.len() > 80, "types were not found");
    let unnamed = unnamed_types(&glossary, &types);
    ensure!(unnamed.is_empty(), "docs/glossary.md: name these types beside their nouns: {}", unnamed.join(", "));
    Ok(())
}

#[test]
fn types_that_a_glossary_does_not_name_are_found() {
    let glossary = "| write set | x |\n| page (`some_crate::Page`) | x |\n| item (of a site) | x |";
    let types = ["WriteSet", "Page", "Item", "Other"].map(str::to_owned);
    assert_eq!(unnamed_types(glossary, &types), ["WriteSet", "Item"]);
}

/// Returns the types that are called as a noun of the glossary and that no noun names.
fn unnamed_types(glossary: &str, types: &[String]) -> Vec<String> {
    let named = glossary_types(glossary);
    let is_named = |name: &str| named.values().any(|found| found.rsplit("::").next() == Some(name));
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let nouns: Vec<&str> = rows.filter_map(|noun| noun.split(" (").next()).collect();
    types.iter().filter(|name| nouns.contains(&words(name).as_str()) && !is_named(name)).cloned().collect()
}

/// Returns the words of a type's name: `write set` for `WriteSet`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

/// Returns the names of the types that a library re-exports at its root, one by one or all of a module.
fn root_types(library: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(library.join("src/lib.rs"))?;
    let mut names = Vec::new();
    for exported in text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        if let Some(module) = exported.strip_suffix("::*") {
            let text = std::fs::read_to_string(library.join(format!("src/{module}.rs")))?;
            names.extend(declared_types(&text).filter(|declared| declared.is_public).map(|declared| declared.name));
        }
        let exported = exported.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_type = |name: &&str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
        names.extend(exported.filter(is_type).map(str::to_owned));
    }
    Ok(names)
}

#[test]
fn no_type_has_a_coined_name() -> Result<()> {
    let root = root();
    let types = all_types(&root)?;
    ensure!(types.len() > 500, "types were not found");
    let coined: Vec<String> = types
        .iter()
        .filter(|(_, declaration)| COINAGES.contains(&declaration.name.as_str()))
        .map(|(path, declaration)| format!("{}: {}", path.display(), declaration.name))
        .collect();
    ensure!(coined.is_empty(), "name these types by a term of the field:\n{}", coined.join("\n"));
    Ok(())
}

#[test]
fn no_function_or_variable_has_a_coined_name() -> Result<()> {
    let root = root();
    let mut coined = Vec::new();
    for path in sources(&root.join("crates"))? {
        let text = std::fs::read_to_string(&path)?;
        let names = text.lines().filter_map(declared_name).filter(|name| COINED_WORDS.contains(name));
        coined.extend(names.map(|name| format!("{}: {name}", path.display())));
    }
    ensure!(coined.is_empty(), "name these by a term of the field:\n{}", coined.join("\n"));
    Ok(())
}

/// Returns the name of a function or a variable that a line declares.
fn declared_name(line: &str) -> Option<&str> {
    let mut words = line.split(|character: char| !character.is_alphanumeric() && character != '_');
    words.find(|word| ["fn", "let"].contains(word))?;
    words.find(|word| !["", "mut"].contains(word))
}

#[test]
fn declared_names_are_found() {
    let names = ["    pub(crate) async fn fate(&self) {", "let mut told = 1;", "    told(fn_name);"].map(declared_name);
    assert_eq!(names, [Some("fate"), Some("told"), None]);
}

#[test]
fn sources_name_the_items_that_they_import() -> Result<()> {
    let root = root();
    let hidden: Vec<String> = sources(&root.join("crates"))?
        .into_iter()
        .filter(|path| std::fs::read_to_string(path).is_ok_and(|text| imports_everything(&text)))
        .map(|path| path.display().to_string())
        .collect();
    ensure!(
        hidden.is_empty(),
        "name the items in `use super::..` and `use crate::..`, so that a reader sees the vocabulary:\n{}",
        hidden.join("\n")
    );
    Ok(())
}

#[test]
fn imports_of_everything_are_found() {
    assert!(imports_everything("mod tests {\n    use super::*;\n"));
    assert!(imports_everything("use crate::*;\n"));
    assert!(!imports_everything("use crate::*;\n\noperations!(a_macro);\n"));
    assert!(!imports_everything("use super::{One, Two};\nuse proptest::prelude::*;\n"));
}

/// Returns whether a source imports all items of its parent or its crate without naming them. A source that expands the table of the contract's operations may,
/// as the table names all requests.
fn imports_everything(text: &str) -> bool {
    let has_table = text.contains("\noperations!(");
    text.lines().any(|line| match line.trim() {
        "use super::*;" => true,
        "use crate::*;" => !has_table,
        _ => false,
    })
}

/// Returns all Rust files below a directory.
fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Returns the nouns of the glossary that name a type, with the type: `| noun (`Type`) | meaning |`.
fn glossary_types(glossary: &str) -> BTreeMap<String, String> {
    let nouns = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named = nouns.filter_map(|noun| {
        let (noun, rest) = noun.split_once(" (`")?;
        Some((noun.to_owned(), rest.strip_suffix("`)")?.to_owned()))
    });
    named.collect()
}

/// Returns all types that the source of the crates declares, with the file of each.
fn all_types(root: &Path) -> Result<Vec<(PathBuf, TypeDeclaration)>> {
    let mut types = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        for path in sources(&entry?.path().join("src"))? {
            let text = std::fs::read_to_string(&path)?;
            types.extend(declared_types(&text).map(|declaration| (path.clone(), declaration)));
        }
    }
    Ok(types)
}

/// Returns the types that a source file declares.
fn declared_types(text: &str) -> impl Iterator<Item = TypeDeclaration> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub("));
        let first = words.next()?;
        let is_public = first == "pub";
        let keyword = if is_public { words.next()? } else { first };
        if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
            return None;
        }
        let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        Some(TypeDeclaration { name: name.to_owned(), is_public })
    })
}

#[test]
fn types_are_found_in_sources_and_in_the_glossary() {
    let source =
        "pub struct Place(u32);\npub(crate) enum Fate<'a> {\n    type Own = u8;\n// struct Room\nlet enumerated = 1;";
    let found: Vec<_> = declared_types(source).map(|declared| (declared.name, declared.is_public)).collect();
    let expected = [("Place", true), ("Fate", false), ("Own", false)];
    assert_eq!(found, expected.map(|(name, is_public)| (name.to_owned(), is_public)));
    let glossary =
        "| noun | meaning |\n| --- | --- |\n| cursor (`Cursor`) | Some `Page`s. |\n| class (of an error) | x |";
    assert_eq!(glossary_types(glossary), BTreeMap::from([("cursor".to_owned(), "Cursor".to_owned())]));
}

/// A fault that a network and a store both have is called by one name.
#[test]
fn the_faults_of_the_black_pipe_and_of_a_store_have_the_same_names() -> Result<()> {
    use handfast_store::decorator::Fault;
    let store: Vec<&str> = Fault::ALL_OUTCOMES.into_iter().map(Fault::name).collect();
    let both = handfast_blackpipe::Fault::ALL.map(handfast_blackpipe::Fault::name);
    let both: Vec<&str> = both.into_iter().filter(|name| store.contains(name)).collect();
    ensure!(both == ["lose-request", "lose-reply", "duplicate"], "{both:?}");
    let delay = Fault::Delay(std::time::Duration::ZERO);
    ensure!(delay.name() == handfast_blackpipe::Fault::Delay.name(), "{delay}");
    Ok(())
}

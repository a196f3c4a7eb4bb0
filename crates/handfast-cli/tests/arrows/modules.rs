//! Finds modules of a crate that use each other in a circle, from the paths in the sources.
//!
//! Modules that have the same parent are compared: a file below `write` that names `crate::read::plan` is an arrow from `write` to `read`. A module and
//! its parent may use each other. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::path::Path;

use anyhow::{Result, ensure};

/// The crates whose modules use each other in one direction only.
const CRATES: [&str; 6] =
    ["handfast-cli", "handfast-embedded", "handfast-history", "handfast-wire", "handfast-sim", "handfast"];

/// The modules of a crate, each with its source. The root of the crate is the empty path.
type Modules = BTreeMap<Vec<String>, String>;

/// The name of a module with the name of a module that it uses, both below the same parent.
type Arrow = (String, String);

#[test]
fn no_modules_use_each_other_in_a_circle() -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut offences = Vec::new();
    for name in CRATES {
        let mut modules = Modules::new();
        read_modules(&crates.join(name).join("src"), &[], &mut modules)?;
        ensure!(modules.len() > 3, "{name}: modules were not found");
        offences.extend(circles(&modules).into_iter().map(|arrow| format!("{name}: {arrow}")));
    }
    ensure!(offences.is_empty(), "these are arrows of circles between modules:\n{}", offences.join("\n"));
    Ok(())
}

/// Reads the sources below a directory, without those of tests.
fn read_modules(directory: &Path, parent: &[String], modules: &mut Modules) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        }
        let module = [parent, std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            read_modules(&path, &module, modules)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = parent.is_empty() && ["lib", "main"].contains(&name.as_str());
            modules.insert(if is_root { Vec::new() } else { module }, std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Returns the arrows that belong to circles, with their places.
fn circles(modules: &Modules) -> Vec<String> {
    let mut arrows: BTreeMap<Vec<String>, BTreeMap<Arrow, String>> = BTreeMap::new();
    for (module, source) in modules {
        for path in used_paths(module, source) {
            // What a path names after its module is an item.
            let Some(used) = (0..=path.len()).rev().map(|end| &path[..end]).find(|used| modules.contains_key(*used))
            else {
                continue;
            };
            let common = module.iter().zip(used).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (module.get(common), used.get(common)) {
                let place = format!("{} uses {}", module.join("::"), used.join("::"));
                arrows.entry(module[..common].to_vec()).or_default().insert((from.clone(), to.clone()), place);
            }
        }
    }
    arrows.into_values().flat_map(without_acyclic_ends).collect()
}

/// Removes the arrows of modules that nothing uses, or that use nothing, until only circles and the ways between them are left.
fn without_acyclic_ends(mut arrows: BTreeMap<Arrow, String>) -> Vec<String> {
    loop {
        let from: BTreeSet<String> = arrows.keys().map(|(from, _)| from.clone()).collect();
        let to: BTreeSet<String> = arrows.keys().map(|(_, to)| to.clone()).collect();
        let count = arrows.len();
        arrows.retain(|arrow, _| to.contains(&arrow.0) && from.contains(&arrow.1));
        if arrows.len() == count {
            return arrows.into_values().collect();
        }
    }
}

/// Returns the paths below `crate::` and `super::` in a module's source, from the root of the crate.
fn used_paths(module: &[String], source: &str) -> Vec<Vec<String>> {
    let code: String =
        source.lines().filter_map(|line| line.split("//").next()).flat_map(|line| [line, "\n"]).collect();
    let mut tokens = tokens(&code).into_iter().peekable();
    let mut found = Vec::new();
    while let Some(token) = tokens.next() {
        let mut base = match token {
            "crate" => Vec::new(),
            "super" => parent(module),
            _ => continue,
        };
        if tokens.next_if_eq(&"::").is_none() {
            continue;
        }
        while tokens.next_if_eq(&"super").is_some() {
            base = parent(&base);
            tokens.next_if_eq(&"::");
        }
        read_tree(&mut tokens, base, &mut found);
    }
    found
}

fn parent(module: &[String]) -> Vec<String> {
    module.split_last().map(|(_, parent)| parent.to_vec()).unwrap_or_default()
}

/// Reads one path, or a tree of paths such as `one::{two, three::four}`.
fn read_tree<'a>(
    tokens: &mut Peekable<impl Iterator<Item = &'a str>>,
    mut path: Vec<String>,
    found: &mut Vec<Vec<String>>,
) {
    while let Some(token) = tokens.next_if(|token| *token != "}") {
        if token == "{" {
            while tokens.peek().is_some_and(|token| *token != "}") {
                read_tree(tokens, path.clone(), found);
                tokens.next_if_eq(&",");
            }
            tokens.next();
            return;
        }
        path.push(token.to_owned());
        if tokens.next_if_eq(&"::").is_none() {
            break;
        }
    }
    if tokens.next_if_eq(&"as").is_some() {
        tokens.next();
    }
    found.push(path);
}

/// Splits code into words, `::` and single other characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match rest.find(|c| !is_word(c)) {
            Some(0) if rest.starts_with("::") => 2,
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => rest.len(),
        };
        let (token, after) = rest.split_at(length);
        found.push(token);
        rest = after.trim_start();
    }
    found
}

#[test]
fn circles_are_found() {
    let check = |sources: &[(&str, &str)], expected: &[&str]| {
        let modules = sources.iter().map(|(module, source)| {
            let module = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            (module, (*source).to_owned())
        });
        assert_eq!(circles(&modules.collect()), expected);
    };
    let two = &["one uses two", "two uses one"][..];
    check(&[("one", "use crate::two::Item;"), ("two", "fn f() { crate::one::g::<u8>() }")], two);
    check(&[("one", "use super::two::{self, Item};"), ("two", "use super::{four, one as first};"), ("four", "")], two);
    // A file below a module counts as the module.
    check(
        &[
            ("one", ""),
            ("one::a", "use super::super::two::b;"),
            ("two", ""),
            ("two::b", "use crate::{one::{a::{X, Y}}};"),
        ],
        &["one::a uses two::b", "two::b uses one::a"],
    );
    // A third module closes the circle; a fourth is not in it.
    check(
        &[
            ("1", "use crate::{2, 4};"),
            ("2", "use crate::3;"),
            ("3", "use crate::1;"),
            ("4", ""),
            ("5", "use crate::1;"),
        ],
        &["1 uses 2", "2 uses 3", "3 uses 1"],
    );
    // These are no circles: one direction, parents and children, comments, visibilities.
    check(&[("one", "use crate::two;"), ("two", "// crate::one\npub(in crate::two) struct X;")], &[]);
    check(&[("", "use one::X;"), ("one", "use crate::Y; use one::a::X;"), ("one::a", "use super::Z;")], &[]);
}

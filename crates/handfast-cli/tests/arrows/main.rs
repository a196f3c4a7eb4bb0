//! Compares the arrows between crates in ARCHITECTURE.md with the manifests and `Cargo.lock`.
//!
//! The test reads three tables of that file: the direct dependencies of crates of this workspace (without those for tests), the crates that
//! a crate must not reach through any chain of dependencies, and the crates that may use certain external crates. Direct dependencies come
//! from `cargo metadata --no-deps`, which needs no network and no downloaded crates; chains come from `Cargo.lock`.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The prefix of all crates of this workspace; the tables omit it in the column of targets.
const PREFIX: &str = "handfast-";

/// The crate that nothing may use, not even for tests.
const PROGRAM: &str = "handfast-cli";

/// A crate of the workspace with the names of its direct dependencies.
#[derive(Debug, Default)]
struct Member {
    normal: BTreeSet<String>,
    development: BTreeSet<String>,
}

type Members = BTreeMap<String, Member>;

/// Every package of `Cargo.lock` with its dependencies, without versions.
type Lock = BTreeMap<String, BTreeSet<String>>;

/// Each external crate with the members that may depend on it directly.
type Direct = BTreeMap<String, BTreeSet<String>>;

/// The rule that `from` never reaches `targets`, except through `except`.
struct Never {
    from: String,
    targets: BTreeSet<String>,
    except: BTreeSet<String>,
}

#[test]
fn the_workspace_keeps_to_its_architecture() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(&root)
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));

    let members = parse_metadata(&serde_json::from_slice(&output.stdout)?)?;
    let lock = parse_lock(&std::fs::read_to_string(root.join("Cargo.lock"))?)?;
    let mut offences = check_arrows(&parse_arrows(&architecture)?, &members);
    offences.extend(check_never(&parse_never(&architecture)?, &members, &lock));
    offences.extend(check_direct(&parse_direct(&architecture)?, &members));
    ensure!(offences.is_empty(), "ARCHITECTURE.md forbids:\n{}", offences.join("\n"));
    Ok(())
}

/// Returns a line for each dependency of the members that the table of arrows does not allow.
fn check_arrows(arrows: &BTreeMap<String, BTreeSet<String>>, members: &Members) -> Vec<String> {
    let mut offences = Vec::new();
    for row in arrows.keys().filter(|row| !members.contains_key(*row)) {
        offences.push(format!("{row} has a row but is no crate"));
    }
    for (name, member) in members {
        let Some(allowed) = arrows.get(name) else {
            offences.push(format!("{name} has no row"));
            continue;
        };
        for target in member.normal.iter().filter(|target| members.contains_key(*target)) {
            if !allowed.contains(target) {
                offences.push(format!("{name} -> {target} is not in the table"));
            }
        }
        if member.normal.union(&member.development).any(|target| target == PROGRAM) {
            offences.push(format!("{name} -> {PROGRAM}: nothing may use the program"));
        }
    }
    offences
}

/// Returns a line for each forbidden crate that a member reaches, with the chain of dependencies.
fn check_never(rules: &[Never], members: &Members, lock: &Lock) -> Vec<String> {
    let mut offences = Vec::new();
    for rule in rules {
        let Some(member) = members.get(&rule.from) else {
            offences.push(format!("{} has a rule but is no crate", rule.from));
            continue;
        };
        if let Some(chain) = chain_to(rule, member, members, lock) {
            offences.push(format!("{} reaches what it never may: {}", rule.from, chain.join(" -> ")));
        }
    }
    offences
}

/// Returns a line for each direct dependency that the third table does not allow, also of tests.
fn check_direct(direct: &Direct, members: &Members) -> Vec<String> {
    let mut offences = Vec::new();
    for (name, member) in members {
        for target in member.normal.union(&member.development) {
            if direct.get(target).is_some_and(|allowed| !allowed.contains(name)) {
                offences.push(format!("{name} -> {target}: it has no row for that"));
            }
        }
    }
    offences
}

/// Returns the first chain from a crate to a crate that its rule forbids.
fn chain_to(rule: &Never, member: &Member, members: &Members, lock: &Lock) -> Option<Vec<String>> {
    let mut pending: Vec<Vec<String>> =
        member.normal.iter().map(|target| vec![rule.from.clone(), target.clone()]).collect();
    let mut seen = BTreeSet::new();
    while let Some(chain) = pending.pop() {
        let last = chain.last()?;
        if rule.targets.contains(last) {
            return Some(chain);
        }
        if rule.except.contains(last) || !seen.insert(last.clone()) {
            continue;
        }
        // For members it uses the manifest, as `Cargo.lock` does not distinguish a member's dependencies for tests.
        let next = members.get(last).map(|member| &member.normal).or_else(|| lock.get(last));
        for target in next.into_iter().flatten() {
            pending.push(chain.iter().chain([target]).cloned().collect());
        }
    }
    None
}

fn parse_metadata(metadata: &serde_json::Value) -> Result<Members> {
    let mut members = Members::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().context("name")?;
        let member = members.entry(name.to_owned()).or_default();
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let target = dependency["name"].as_str().context("dependency name")?.to_owned();
            // `kind` is null for a normal dependency, "build" or "dev".
            match dependency["kind"].as_str() {
                Some("dev") => member.development.insert(target),
                _ => member.normal.insert(target),
            };
        }
    }
    Ok(members)
}

fn parse_lock(text: &str) -> Result<Lock> {
    let lock: toml::Table = text.parse()?;
    let mut packages = Lock::new();
    for package in lock.get("package").and_then(toml::Value::as_array).context("package")? {
        let name = package.get("name").and_then(toml::Value::as_str).context("name")?;
        let targets = packages.entry(name.to_owned()).or_default();
        for dependency in package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten() {
            let dependency = dependency.as_str().context("dependency")?;
            // A dependency is written as "name" or "name version"; versions are merged, which can only make chains longer.
            targets.insert(dependency.split(' ').next().unwrap_or(dependency).to_owned());
        }
    }
    Ok(packages)
}

/// Returns the rows between two markers, with trimmed cells, without the header and the rule.
fn table_rows(text: &str, marker: &str) -> Result<Vec<Vec<String>>> {
    let (_, rest) = text.split_once(&format!("<!-- {marker}: begin -->")).context("begin of the table")?;
    let (table, _) = rest.split_once(&format!("<!-- {marker}: end -->")).context("end of the table")?;
    let rows: Vec<Vec<String>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    ensure!(!rows.is_empty(), "the table {marker} is empty");
    Ok(rows)
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "nothing")
}

fn parse_arrows(text: &str) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut arrows = BTreeMap::new();
    for row in table_rows(text, "arrows")? {
        let [name, _kind, _holds, may_use] = row.as_slice() else { bail!("a row of arrows has four cells: {row:?}") };
        let targets = names(may_use).map(|target| format!("{PREFIX}{target}")).collect();
        ensure!(arrows.insert(name.clone(), targets).is_none(), "{name} has two rows");
    }
    Ok(arrows)
}

fn parse_never(text: &str) -> Result<Vec<Never>> {
    let mut rules = Vec::new();
    for row in table_rows(text, "never")? {
        let [from, targets, except] = row.as_slice() else { bail!("a row of never has three cells: {row:?}") };
        rules.push(Never {
            from: from.clone(),
            targets: names(targets).map(str::to_owned).collect(),
            except: names(except).map(str::to_owned).collect(),
        });
    }
    Ok(rules)
}

fn parse_direct(text: &str) -> Result<Direct> {
    let mut direct = Direct::new();
    for row in table_rows(text, "direct")? {
        let [targets, users] = row.as_slice() else { bail!("a row of direct has two cells: {row:?}") };
        let users: BTreeSet<String> = names(users).map(str::to_owned).collect();
        for target in names(targets) {
            ensure!(direct.insert(target.to_owned(), users.clone()).is_none(), "{target} has two rows");
        }
    }
    Ok(direct)
}

#[cfg(test)]
mod the_check_itself_can_fail {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{
        Member, Members, check_arrows, check_direct, check_never, parse_arrows, parse_direct, parse_lock,
        parse_metadata, parse_never,
    };

    const TABLES: &str = "
<!-- arrows: begin -->
| crate | kind | what it holds | may use |
| --- | --- | --- | --- |
| handfast-mql | pure | language | nothing |
| handfast-store | contract | contract | mql |
| handfast-embedded | backend | engine | store, mql |
| handfast-cli | binary | program | embedded, store |
<!-- arrows: end -->
<!-- never: begin -->
| crate | never reaches | except through |
| --- | --- | --- |
| handfast-mql | tokio, mio | nothing |
| handfast-mql | getrandom | bson |
| handfast-store | fjall | nothing |
<!-- never: end -->
<!-- direct: begin -->
| crate from outside | directly used by |
| --- | --- |
| dice | handfast-store |
| cards, coins | nothing |
<!-- direct: end -->
";

    const LOCK: &str = r#"
[[package]]
name = "handfast-mql"
dependencies = ["bson", "proptest", "thiserror"]
[[package]]
name = "bson"
dependencies = ["getrandom 0.3.1", "serde"]
[[package]]
name = "helper"
dependencies = ["tokio"]
[[package]]
name = "tokio"
dependencies = ["mio"]
[[package]]
name = "proptest"
dependencies = ["getrandom 0.3.1"]
"#;

    fn check(edges: &[(&str, &str, Option<&str>)], expected: &[&str]) {
        let packages: Vec<_> = ["handfast-mql", "handfast-store", "handfast-embedded", "handfast-cli"]
            .iter()
            .map(|name| {
                let dependencies: Vec<_> = edges
                    .iter()
                    .filter(|(from, ..)| from == name)
                    .map(|(_, target, kind)| serde_json::json!({ "name": target, "kind": kind }))
                    .collect();
                serde_json::json!({ "name": name, "dependencies": dependencies })
            })
            .collect();
        let members = parse_metadata(&serde_json::json!({ "packages": packages })).unwrap();
        let mut offences = check_arrows(&parse_arrows(TABLES).unwrap(), &members);
        offences.extend(check_never(&parse_never(TABLES).unwrap(), &members, &parse_lock(LOCK).unwrap()));
        offences.extend(check_direct(&parse_direct(TABLES).unwrap(), &members));
        assert_eq!(offences, expected);
    }

    #[test]
    fn on_made_up_manifests() {
        // The tables allow these arrows, including dependencies for tests and the one exception.
        check(
            &[
                ("handfast-mql", "bson", None),
                ("handfast-mql", "proptest", Some("dev")),
                ("handfast-store", "handfast-mql", None),
                ("handfast-store", "handfast-embedded", Some("dev")),
                ("handfast-store", "dice", None),
                ("handfast-cli", "handfast-embedded", None),
            ],
            &[],
        );
        // The arrow points upwards.
        check(&[("handfast-mql", "handfast-store", None)], &["handfast-mql -> handfast-store is not in the table"]);
        // The arrow is a dependency of a build script.
        check(
            &[("handfast-mql", "handfast-store", Some("build"))],
            &["handfast-mql -> handfast-store is not in the table"],
        );
        // No crate may use the program, not even for tests.
        check(
            &[("handfast-store", "handfast-cli", Some("dev"))],
            &["handfast-store -> handfast-cli: nothing may use the program"],
        );
        // A chain goes through an external crate.
        check(
            &[("handfast-mql", "helper", None)],
            &["handfast-mql reaches what it never may: handfast-mql -> helper -> tokio"],
        );
        // Only a chain through bson may reach a source of randomness.
        check(
            &[("handfast-mql", "proptest", None)],
            &["handfast-mql reaches what it never may: handfast-mql -> proptest -> getrandom"],
        );
        // A member depends on an external crate that it may not use directly, also for tests.
        check(&[("handfast-mql", "dice", None)], &["handfast-mql -> dice: it has no row for that"]);
        check(&[("handfast-store", "coins", Some("dev"))], &["handfast-store -> coins: it has no row for that"]);
        // The forbidden crate is a direct dependency.
        check(
            &[("handfast-store", "fjall", None)],
            &["handfast-store reaches what it never may: handfast-store -> fjall"],
        );
    }

    #[test]
    fn on_crates_without_rows_and_rows_without_crates() {
        let members = Members::from([("handfast-new".to_owned(), Member::default())]);
        let arrows = BTreeMap::from([("handfast-old".to_owned(), BTreeSet::new())]);
        let expected = ["handfast-old has a row but is no crate", "handfast-new has no row"];
        assert_eq!(check_arrows(&arrows, &members), expected);
    }

    #[test]
    fn on_tables_that_cannot_be_read() {
        assert!(parse_arrows("").is_err());
        assert!(parse_arrows("<!-- arrows: begin -->\n<!-- arrows: end -->").is_err());
        let short = "<!-- arrows: begin -->\n| a |\n| - |\n| handfast-mql | pure |\n<!-- arrows: end -->";
        assert!(parse_arrows(short).is_err());
    }
}

//! Rules files of `handfast blackpipe`, and the names of the faults wherever they stand.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use handfast_blackpipe::{Fault, rules};
use serde_json::Value;

use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, handfast, output};

fn check(scratch: &Scratch, rules: &str) -> Result<std::process::Output> {
    std::fs::write(scratch.path("rules.toml"), rules)?;
    output(&mut handfast(scratch, &["blackpipe", "rules", "check", "rules.toml"]))
}

#[test]
fn a_misspelt_command_is_refused_and_an_unknown_one_warned_about() -> Result<()> {
    let scratch = Scratch::new("blackpipe-commands")?;
    let of_command = |command: &str| format!("[[rule]]\nfault = 'cut'\ncommand = '{command}'\n");
    let misspelt = "rules.toml: line 3: no server knows a command 'updates': did you mean \"update\"?";
    assert_one_line(&check(&scratch, &of_command("updates"))?, 2, misspelt);
    let unknown = "rules.toml: line 1: MongoDB has no command 'refreshViews': the rule applies if";
    let checked = check(&scratch, &of_command("refreshViews"))?;
    assert_one_line(&checked, 0, unknown);
    ensure!(String::from_utf8_lossy(&checked.stdout).contains("refreshViews"), "{checked:?}");

    // The same sentences before a server.
    let mut proxy = handfast(&scratch, &["blackpipe", "proxy", "--upstream", "mongodb://127.0.0.1:1", "--json"]);
    let proxy = Serve::spawn(proxy.args(["--rules", "rules.toml"]))?;
    proxy.signal("TERM")?;
    let (code, said) = proxy.wait()?;
    ensure!(code == Some(0) && said.contains(unknown), "{code:?} {said}");
    std::fs::write(scratch.path("rules.toml"), of_command("updates"))?;
    let flags = ["blackpipe", "proxy", "--upstream", "mongodb://127.0.0.1:1", "--rules", "rules.toml"];
    assert_one_line(&output(&mut handfast(&scratch, &flags))?, 2, misspelt);
    Ok(())
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_the_line_and_what_to_write() -> Result<()> {
    let scratch = Scratch::new("blackpipe-toml")?;
    let refused = check(&scratch, "[[rule]]\nfault = cut\n")?;
    let place = "rules.toml: line 2, column 9: the file is no TOML: ";
    assert_one_line(&refused, 2, place);
    assert_one_line(&refused, 2, "; the line is: fault = cut; write `key = value` with texts in quotation marks, each");
    Ok(())
}

/// Every command of the server is known to the rules, but for those that drivers send by themselves.
#[test]
fn the_commands_of_the_server_are_no_mistakes() -> Result<()> {
    let scratch = Scratch::new("blackpipe-known-commands")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let listed = server.command(doc! { "listCommands": 1, "$db": "admin" })?;
    let (mut known, mut of_drivers) = (0, Vec::new());
    for command in listed.get_document("commands")?.keys() {
        match rules::parse(&format!("[[rule]]\nfault = 'cut'\ncommand = '{command}'\n")) {
            Ok(rules) => {
                ensure!(rules.iter().all(|rule| rule.warning.is_none()), "{rules:?}");
                known += 1;
            }
            Err(error) => {
                ensure!(error.to_string().contains("drivers send the command"), "{error}");
                of_drivers.push(command.as_str());
            }
        }
    }
    ensure!(known > 40 && of_drivers.contains(&"hello"), "{known} {of_drivers:?}");
    Ok(())
}

fn names<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> BTreeSet<&'static str> {
    faults.into_iter().map(|fault| fault.name()).collect()
}

/// The faults of the program stand in the guide, in the help, in the schema of rules files and in the errors, and no others do.
#[test]
fn the_faults_have_the_same_names_everywhere() -> Result<()> {
    let scratch = Scratch::new("blackpipe-faults")?;
    let said = |arguments: &[&str]| -> Result<String> {
        let output = output(&mut handfast(&scratch, arguments))?;
        Ok([&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat())
    };
    let explored = Fault::ALL.iter().filter(|fault| fault.is_explored());
    let (all, explored, default) = (names(&Fault::ALL), names(explored), names(&Fault::DEFAULT));

    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/blackpipe.md"))?;
    let (_, table) = guide.split_once("| fault | what happens | explored |\n").context("the table of faults")?;
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect();
    let of_guide = |is_meant: fn(&str) -> bool| -> BTreeSet<&str> {
        rows.iter().filter(|row| is_meant(row[row.len() - 1])).map(|row| row[0].trim_matches('`')).collect()
    };
    ensure!(of_guide(|_| true) == all, "{rows:?}");
    ensure!(of_guide(|explored| explored == "by default") == default, "{rows:?}");
    ensure!(of_guide(|explored| explored == "by default" || explored == "with `--only`") == explored, "{rows:?}");

    let help = said(&["blackpipe", "explore", "--help"])?;
    let words: BTreeSet<&str> =
        help.split(|character: char| !character.is_ascii_alphanumeric() && character != '-').collect();
    ensure!(explored.is_subset(&words), "{:?} are not in the help:\n{help}", explored.difference(&words));

    let schema: Value = serde_json::from_str(&said(&["blackpipe", "rules", "schema"])?)?;
    let in_schema = schema["$defs"]["rule"]["properties"]["fault"]["enum"].as_array().context("the faults")?;
    ensure!(in_schema.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>() == all, "{in_schema:?}");

    let listed = |text: &str| -> Result<BTreeSet<String>> {
        let (_, names) = text.rsplit_once(": ").context("a list")?;
        Ok(names.lines().next().unwrap_or_default().split(", ").map(str::to_owned).collect())
    };
    std::fs::write(scratch.path("rules.toml"), "[[rule]]\nfault = 'lose'\n")?;
    let refused = said(&["blackpipe", "rules", "check", "rules.toml"])?.replace("the faults are ", ": ");
    ensure!(listed(&refused)?.iter().map(String::as_str).collect::<BTreeSet<_>>() == all, "{refused}");
    let refused = said(&["blackpipe", "explore", "--check", "true", "--only", "lose-it", "--", "true"])?;
    let in_error = listed(refused.replace(", or all", "").split("\n\n").next().unwrap_or_default())?;
    ensure!(in_error.iter().map(String::as_str).collect::<BTreeSet<_>>() == explored, "{refused}");
    Ok(())
}

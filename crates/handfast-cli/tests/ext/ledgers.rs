//! Programs in five languages on one ledger of a real server, at the same time. Each has an account of its own and makes the same steps, repeated, in
//! transactions, and aborted; all of them take from the account `cash` and give to the account `shop`.

use std::process::Command;

use serde_json::Value;

use crate::running::java_arguments;
use crate::support::{Handfast, Tool};

/// The balance of each program's own account after its steps.
const BALANCE: i64 = 890;
/// The amount that the program in Python holds until the next century.
const HELD: i64 = 5;
/// The amount that each client takes from `cash`.
const DEPOSIT: i64 = 1000;

#[test]
fn ext_ledger_of_five_languages() {
    let (Some(python), Some(node)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    let (Some(go), Some(mongosh)) = (Tool::GoClients.find(), Tool::Mongosh.find()) else { return };
    let Some(java) = java_arguments() else { return };
    let java: Vec<&str> = java.iter().map(String::as_str).chain(["Ledger"]).collect();
    let server = Handfast::start();
    let uri = server.uri();
    let shell = [&mongosh, "--quiet", "--norc", &uri, "--file", "tests/clients/mongosh/ledger.js"];
    let programs: [(&str, &[&str]); 5] = [
        (&python, &["tests/clients/python/ledger.py"]),
        (&node, &["tests/clients/node/ledger.mjs"]),
        (&go, &["ledger"]),
        (&node, &shell),
        ("java", &java),
    ];
    std::thread::scope(|scope| {
        for (program, arguments) in programs {
            scope.spawn(|| server.run(program, arguments));
        }
    });
    let verified = ledger(&uri, &["verify"]);
    assert_eq!(verified["findings_count"], 0, "{verified}");
    // Everything that can be committed is, and nothing changes by that.
    assert_eq!(ledger(&uri, &["reconcile"])["failed"], 0);
    assert_eq!(ledger(&uri, &["status"])["uncommitted"], 0);
    assert_eq!(ledger(&uri, &["verify"])["findings_count"], 0);
    let schemas = "tests/clients/python/schemas.py";
    server.run(&python, &[schemas, "ledger.md", "bank.tx", "bank.account", "bank.hold"]);
    let languages = ["python", "node", "go", "mongosh", "java"];
    let count = i64::try_from(languages.len()).expect("a few");
    for (account, expected) in languages
        .map(|language| (language, BALANCE))
        .into_iter()
        .chain([("cash", -DEPOSIT * count), ("shop", (DEPOSIT - BALANCE) * count)])
    {
        let shown = ledger(&uri, &["balance", account]);
        let held = if account == "python" { HELD } else { 0 };
        assert!(shown["balance"] == expected && shown["held"] == held, "{account} must have {expected}: {shown}");
    }
    server.stop();
}

/// Runs a command of `handfast ledger`, which must exit with 0, and returns its line of JSON.
fn ledger(uri: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.arg("ledger").args(arguments).args(["--store", uri, "--database", "bank", "--json"]);
    let output = crate::running::output(&mut command);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("a line of JSON")
}

//! Programs in two languages on the documents of four patterns of a real server, at the same time: updates that are made once, two-phase transactions, a
//! sync flag, a versioned tree. Each repeats its steps, makes them in transactions, and aborts those.

use std::process::Command;

use crate::support::{Handfast, Tool};

/// Runs the two programs, and then verifies the documents from the command line.
fn check(server: Handfast, python: &str, node: &str) {
    let programs = [(python, "tests/clients/python/patterns.py"), (node, "tests/clients/node/patterns.mjs")];
    let server_of_all = &server;
    std::thread::scope(|scope| {
        for (program, file) in programs {
            scope.spawn(move || server_of_all.run(program, &[file]));
        }
    });
    let uri = server.uri();
    verify(&uri, &["twophase", "verify", "--collection", "transfers"]);
    verify(&uri, &["sync", "verify", "--collection", "users"]);
    verify(&uri, &["versions", "verify", "--collection", "items", "--root", "catalogue"]);
    server.run(python, &["-c", TOTALS]);
    let schemas = "tests/clients/python/schemas.py";
    server.run(python, &[schemas, "two-phase-commit.md", "site.transfers", "site.accounts"]);
    server.run(python, &[schemas, "sync-flag.md", "site.users", "site.comments"]);
    server.run(python, &[schemas, "versioned-tree.md", "site.items"]);
    server.stop();
}

/// What both programs have done together: they cannot check it themselves, as each of them may end first.
const TOTALS: &str = "\
import os, pymongo
site = pymongo.MongoClient(os.environ['MONGODB_URI']).site
assert site.pages.find_one({'_id': 'shared'})['views'] == 20
assert site.accounts.find_one({'_id': 'shop'})['balance'] == 2 * (10 * 5 + 10)
tree = site.command({'handfastReadTree': 'items', 'tree': 'catalogue'})
assert sorted((node['item'], node['content']['number']) for node in tree['nodes']) == [('node', 5), ('python', 5)]
assert site.items.count_documents({'versionState': 'committed'}) == 12
";

#[test]
fn ext_patterns_of_two_languages() {
    let (Some(python), Some(node)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    check(Handfast::start(), &python, &node);
}

/// The same over a store of single documents: a second server in front of the first one.
#[test]
fn ext_patterns_of_two_languages_before_another_server() {
    let (Some(python), Some(node)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    let behind = Handfast::start();
    check(Handfast::before(&behind.uri(), &[]), &python, &node);
    behind.stop();
}

/// Runs a command that verifies, which fails if it finds anything.
fn verify(uri: &str, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.args(arguments).args(["--store", uri, "--database", "site", "--json"]);
    let output = crate::running::output(&mut command);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

//! The programs of guides in other languages, which run as pasted and print what the guide says.

use crate::support::{Handfast, Tool, root};

#[test]
fn ext_guide_of_the_job_queue() {
    let Some(python) = Tool::Python.find() else { return };
    check("job-queue.md", "python", &[&python, "-c"]);
}

#[test]
fn ext_guide_of_the_ledger() {
    let (Some(python), Some(node)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    check("ledger.md", "python", &[&python, "-c"]);
    check("ledger.md", "js", &[&node, "--input-type=module", "-e"]);
}

#[test]
fn ext_guides_of_the_other_patterns() {
    let (Some(python), Some(node)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    for page in ["exactly-once.md", "two-phase-commit.md", "sync-flag.md", "versioned-tree.md"] {
        check(page, "python", &[&python, "-c"]);
        check(page, "js", &[&node, "--input-type=module", "-e"]);
    }
}

#[test]
fn ext_guide_of_change_streams() {
    let Some(python) = Tool::Python.find() else { return };
    check("../change-streams.md", "python", &[&python, "-c"]);
}

/// Runs the first program of a page in a language on a server of its own. What it prints is in the first block of text after it.
fn check(page: &str, language: &str, interpreter: &[&str]) {
    let page = std::fs::read_to_string(root().join("docs/patterns").join(page)).expect("the page");
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a program");
    let (program, rest) = rest.split_once("```").expect("the end of the program");
    let (_, rest) = rest.split_once("```text\n").expect("what it prints");
    let (printed, _) = rest.split_once("```").expect("the end of what it prints");
    let server = Handfast::start();
    let (interpreter, flags) = interpreter.split_first().expect("a program");
    let arguments: Vec<&str> = flags.iter().copied().chain([program]).collect();
    // Node finds its packages from there.
    let folder = root().join("tests/clients/node");
    let output = server.command(interpreter, &arguments).current_dir(folder).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), errors.as_ref()), (printed, ""));
    server.stop();
}

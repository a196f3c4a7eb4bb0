//! Programs in a folder, with the setup and the check that they share.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Tool, Turn, root, turn};

/// The faults that the tests of these programs are about. Other faults have findings of their own.
pub(super) const FAULTS: [&str; 2] = ["lose-request", "lose-reply"];
/// Runs at the same time: each waits most of the time, until the driver has found the server again.
const JOBS: &str = "4";

/// A folder with programs for one interpreter.
pub(super) struct Programs {
    interpreter: String,
    folder: PathBuf,
    extension: &'static str,
    _turn: Turn,
}

impl Programs {
    /// Returns the Python programs in a folder of tests/clients/blackpipe, if Python is installed.
    pub(super) fn python(folder: &str) -> Option<Self> {
        Self::find(Tool::Python, &format!("tests/clients/blackpipe/{folder}"), "py")
    }

    /// Returns the Node programs in a folder of tests/clients/node/blackpipe, if Node is installed.
    pub(super) fn node(folder: &str) -> Option<Self> {
        Self::find(Tool::Node, &format!("tests/clients/node/blackpipe/{folder}"), "mjs")
    }

    fn find(tool: Tool, folder: &str, extension: &'static str) -> Option<Self> {
        let turn = turn();
        Some(Programs { interpreter: tool.find()?, folder: root().join(folder), extension, _turn: turn })
    }

    /// Explores a program, and returns its pairs of lost requests and replies.
    pub(super) fn explore(&self, program: &str, flags: &[&str]) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
        command.args(["blackpipe", "explore", "--json", "--jobs", JOBS]).args(flags);
        for (flag, name) in [("--setup", "setup"), ("--check", "check")] {
            if self.path(name).exists() {
                command.args([flag, &format!("'{}' '{}'", self.interpreter, self.path(name).display())]);
            }
        }
        let output = command.args(["--", &self.interpreter]).arg(self.path(program)).output();
        let (_, report) = super::report(&output.expect("the program runs"));
        let pairs = report["pairs"].as_array().expect("the pairs").iter();
        pairs.filter(|pair| FAULTS.iter().any(|fault| pair["fault"] == *fault)).cloned().collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension(self.extension)
    }
}

/// Returns the name of a pair: `update:1/lose-reply`.
pub(super) fn name(pair: &Value) -> String {
    let text = |field: &str| pair[field].as_str().expect("a text");
    format!("{}/{}", text("operation"), text("fault"))
}

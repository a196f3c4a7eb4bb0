//! Programs that are explored, with the setup and the check that they share.

use std::process::Command;

use serde_json::Value;

use crate::running::{java_arguments, output};
use crate::support::{Tool, Turn, root, turn};

/// The faults of every exploration.
pub(super) const FAULTS: [&str; 2] = ["lose-request", "lose-reply"];
/// Runs at the same time: each waits most of the time, until the driver has found the server again.
const JOBS: &str = "4";
/// Generous for a busy machine: none of these programs hangs.
const TIMEOUT: &str = "2m";

/// Programs of one tool. Each is the last argument of the tool: its name between a prefix and a suffix.
pub(super) struct Programs {
    tool: String,
    /// The arguments before the program.
    arguments: Vec<String>,
    prefix: String,
    suffix: &'static str,
    has_setup: bool,
    has_check: bool,
    _turn: Turn,
}

impl Programs {
    /// Returns the Python programs in a folder of tests/clients/blackpipe, if Python is installed.
    pub(super) fn python(folder: &str) -> Option<Self> {
        Self::scripts(Tool::Python, &format!("tests/clients/blackpipe/{folder}"), ".py")
    }

    /// Returns the Node programs in a folder of tests/clients/node/blackpipe, if Node is installed.
    pub(super) fn node(folder: &str) -> Option<Self> {
        Self::scripts(Tool::Node, &format!("tests/clients/node/blackpipe/{folder}"), ".mjs")
    }

    fn scripts(tool: Tool, folder: &str, suffix: &'static str) -> Option<Self> {
        let folder = root().join(folder);
        let has = |name: &str| folder.join(format!("{name}{suffix}")).exists();
        let (has_setup, has_check) = (has("setup"), has("check"));
        let prefix = format!("{}/", folder.display());
        Some(Programs { prefix, suffix, has_setup, has_check, ..Self::named(tool.find()?) })
    }

    /// Returns the programs for a subject that are built into a tool, such as `prices-app` and `prices-check`, if it is installed.
    pub(super) fn built_in(tool: Tool, subject: &str) -> Option<Self> {
        let prefix = format!("{subject}-");
        Some(Programs { prefix, has_setup: true, has_check: true, ..Self::named(tool.find()?) })
    }

    /// Returns the program that shows what a driver repeats, which is built into a tool, if it is installed.
    pub(super) fn driver(tool: Tool) -> Option<Self> {
        Some(Self::named(tool.find()?))
    }

    /// Returns the programs in Java, if they are installed.
    pub(super) fn java() -> Option<Self> {
        Some(Programs { arguments: java_arguments()?, ..Self::named("java".to_owned()) })
    }

    /// Returns programs without setup and check, which are called by their names.
    fn named(tool: String) -> Self {
        let (arguments, prefix) = (Vec::new(), String::new());
        Programs { tool, arguments, prefix, suffix: "", has_setup: false, has_check: false, _turn: turn() }
    }

    /// Explores a program, and returns its pairs.
    pub(super) fn explore(&self, program: &str, flags: &[&str]) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
        command.args(["blackpipe", "explore", "--json", "--jobs", JOBS, "--timeout", TIMEOUT]).args(flags);
        for (flag, name, is_there) in [("--setup", "setup", self.has_setup), ("--check", "check", self.has_check)] {
            if is_there {
                command.args([flag, &format!("'{}' '{}'", self.tool, self.argument(name))]);
            }
        }
        let output = output(command.args(["--", &self.tool]).args(&self.arguments).arg(self.argument(program)));
        let (_, report) = super::report(&output);
        report["pairs"].as_array().expect("the pairs").clone()
    }

    fn argument(&self, name: &str) -> String {
        format!("{}{name}{}", self.prefix, self.suffix)
    }
}

/// Returns the name of a pair: `update:1/lose-reply`.
pub(super) fn name(pair: &Value) -> String {
    let text = |field: &str| pair[field].as_str().expect("a text");
    format!("{}/{}", text("operation"), text("fault"))
}

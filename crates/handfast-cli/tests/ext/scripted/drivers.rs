//! The programs that send operations to scripted servers, one for each driver. They print the same outcomes, so that drivers can be compared.

use std::process::Command;

use crate::running::{java_arguments, output};
use crate::support::{Tool, root};

/// The program of a driver.
pub(super) struct Driver {
    tool: String,
    arguments: Vec<String>,
}

impl Driver {
    pub(super) fn pymongo() -> Option<Self> {
        Self::script(Tool::Python, "tests/clients/blackpipe/scripted.py")
    }

    pub(super) fn node() -> Option<Self> {
        Self::script(Tool::Node, "tests/clients/node/blackpipe/scripted.mjs")
    }

    pub(super) fn go() -> Option<Self> {
        Some(Driver { tool: Tool::GoClients.find()?, arguments: vec!["scripted".to_owned()] })
    }

    pub(super) fn rust() -> Option<Self> {
        Some(Driver { tool: Tool::RustDriver.find()?, arguments: vec!["scripted".to_owned()] })
    }

    pub(super) fn java() -> Option<Self> {
        let arguments = [java_arguments()?, vec!["Scripted".to_owned()]].concat();
        Some(Driver { tool: "java".to_owned(), arguments })
    }

    fn script(tool: Tool, path: &str) -> Option<Self> {
        let path = root().join(path).to_string_lossy().into_owned();
        Some(Driver { tool: tool.find()?, arguments: vec![path] })
    }

    /// Runs lists of operations at the same time; returns the outcomes of all operations, in their order.
    pub(super) fn run(&self, uri: &str, operations: &[String]) -> Result<String, String> {
        let mut command = Command::new(&self.tool);
        let output = output(command.args(&self.arguments).args(operations).env("MONGODB_URI", uri));
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{output:?}")),
        }
    }
}

//! The rules file, and `handfast blackpipe rules check`.

use std::path::Path;

use anyhow::{Context as _, Result};
use handfast_blackpipe::{WrittenRule, rules};
use serde_json::json;

use super::arguments::RulesArguments;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::listing::Listing;

pub(super) fn run(arguments: RulesArguments) -> Result<Exit> {
    let RulesArguments::Check(arguments) = arguments;
    let mut listing = Listing::new(&["line", "fault", "operations"]);
    for WrittenRule { line, rule } in read(&arguments.file)? {
        let (injection, condition) = (rule.injection.to_string(), rule.condition.to_string());
        let json = json!({ "line": line, "fault": injection, "operations": condition });
        listing.push([line.to_string(), injection, condition], json);
    }
    Console::new(arguments.output).list(&listing)?;
    Ok(Exit::Good)
}

/// Reads a rules file.
///
/// # Errors
/// Fails if the file cannot be read; a mistake in it is a usage error.
pub(super) fn read(path: &Path) -> Result<Vec<WrittenRule>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    rules::parse(&text).map_err(|error| Usage(format!("{}: {error}", path.display())).into())
}

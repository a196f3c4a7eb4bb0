//! The rules file, and `handfast blackpipe rules check`.

use std::path::Path;

use anyhow::{Context as _, Result};
use handfast_blackpipe::{WrittenRule, rules};
use serde_json::json;

use super::arguments::{RulesArguments, RulesCheckArguments};
use crate::console::{Console, write_out, write_remark};
use crate::exit::{Exit, Usage};
use crate::listing::Listing;

pub(super) fn run(arguments: RulesArguments) -> Result<Exit> {
    match arguments {
        RulesArguments::Check(arguments) => check(&arguments),
        RulesArguments::Schema => Ok(write_out(rules::SCHEMA.as_bytes()).map(|()| Exit::Good)?),
    }
}

fn check(arguments: &RulesCheckArguments) -> Result<Exit> {
    let mut listing = Listing::new(&["line", "fault", "operations"]);
    for WrittenRule { line, rule, .. } in read(&arguments.file)? {
        let (injection, condition) = (rule.injection.to_string(), rule.condition.to_string());
        let json = json!({ "line": line, "fault": injection, "operations": condition });
        listing.push([line.to_string(), injection, condition], json);
    }
    Console::new(arguments.output).list(&listing)?;
    Ok(Exit::Good)
}

/// Reads a rules file. Writes a remark on each rule that may never apply.
///
/// # Errors
/// Fails if the file cannot be read; a mistake in it is a usage error.
pub(super) fn read(path: &Path) -> Result<Vec<WrittenRule>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rules = rules::parse(&text).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    for WrittenRule { line, warning, .. } in &rules {
        if let Some(warning) = warning {
            write_remark(&format!("{}: line {line}: {warning}", path.display()));
        }
    }
    Ok(rules)
}

//! `handfastOpenSyncFlag`: records the links from main documents to their copies, or compares them with the record.

use bson::{Bson, Document, RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_patterns::{Link, OnDelete, SyncFlagOptions};
use handfast_store::Namespace;

use super::super::pattern_steps::{command, invalid, optional_document, owned, required_text};
use super::super::{Call, Command, Properties};
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::request::check_written;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastOpenSyncFlag", "records the links to copies of fields", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mains = call.request.namespace()?;
    check_written(&mains)?;
    let mut arguments = call.arguments("handfastOpenSyncFlag");
    let links = arguments.documents("links")?;
    let links = arguments.required("links", links)?.into_iter().map(|link| read(link, mains.database()));
    let mut options = SyncFlagOptions::new(links.collect::<CommandResult<Vec<_>>>()?);
    if let Some(max) = arguments.exact_unsigned("tokensMax")? {
        options.tokens_max = u32::try_from(max).map_err(|_| invalid(format!("tokensMax is more than {}", u32::MAX)))?;
    }
    arguments.finish()?;
    patterns::sync_flag::open(call.shared, mains, options).await?;
    Ok(Writer::new().into())
}

fn read(link: &RawDocument, database: &str) -> CommandResult<Link> {
    let mut arguments = Arguments::of_document("handfastOpenSyncFlag.links", link)?;
    let target = Namespace::new(database, required_text(&mut arguments, "collection")?)?;
    let key = required_text(&mut arguments, "key")?;
    let mut link = Link::new(target, key);
    for (field, copy) in optional_document(&mut arguments, "fields")?.unwrap_or_default() {
        let Bson::String(copy) = copy else {
            let text = format!("fields.{field} of a link must be a string, the name of the copy");
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        link = link.field(field, copy);
    }
    for (copy, expression) in optional_document(&mut arguments, "computed")?.unwrap_or_default() {
        link = link.expression(copy, expression)?;
    }
    if let Some(rule) = arguments.any("onDelete")? {
        link = link.on_delete(on_delete(rule)?);
    }
    let (version, syncing) = (arguments.text("version")?, arguments.text("syncing")?);
    arguments.finish()?;
    let version = version.map_or_else(|| format!("{key}Version"), str::to_owned);
    let syncing = syncing.map_or_else(|| format!("{key}Syncing"), str::to_owned);
    Ok(link.with_fields(version, syncing))
}

fn on_delete(rule: RawBsonRef<'_>) -> CommandResult<OnDelete> {
    match owned(rule)? {
        Bson::String(rule) if rule == "unset" => Ok(OnDelete::Unset),
        Bson::String(rule) if rule == "remove" => Ok(OnDelete::Remove),
        Bson::String(rule) if rule == "keep" => Ok(OnDelete::Keep),
        Bson::Document(rule) => match values(&rule) {
            Some(values) => Ok(OnDelete::Set(values.clone())),
            None => Err(no_rule()),
        },
        _ => Err(no_rule()),
    }
}

/// Returns the document of a rule that has only `set`.
fn values(rule: &Document) -> Option<&Document> {
    rule.get_document("set").ok().filter(|_| rule.len() == 1)
}

fn no_rule() -> CommandError {
    invalid("onDelete of a link must be \"unset\", \"remove\", \"keep\" or {set: {<copy>: <value>}}")
}

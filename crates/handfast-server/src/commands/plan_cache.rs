//! `planCacheClear`, the commands of index filters, and the stage `$planCacheStats`.
//!
//! The planner chooses a plan anew for each request and keeps none. So the cache is always empty, and clearing it changes nothing. An
//! index filter would change plans: `planCacheSetFilter` is refused, and there are none to list or to remove.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;

use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const CLEAR: Command = Command {
    name: "planCacheClear",
    aliases: &[],
    help: "clears the cache of plans, which is always empty",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Validate]),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(clear(call, "planCacheClear")),
};

pub(crate) const CLEAR_FILTERS: Command = Command {
    name: "planCacheClearFilters",
    help: "removes index filters, of which there are none",
    run: |call| Box::pin(clear(call, "planCacheClearFilters")),
    ..CLEAR
};

pub(crate) const LIST_FILTERS: Command = Command {
    name: "planCacheListFilters",
    help: "lists index filters, of which there are none",
    run: |call| Box::pin(list_filters(call)),
    ..CLEAR
};

pub(crate) const SET_FILTER: Command = Command {
    name: "planCacheSetFilter",
    help: "refuses an index filter: hints choose indexes",
    run: |call| Box::pin(set_filter(call)),
    ..CLEAR
};

/// Returns the fields of a query shape that are given. They must be documents.
fn query_shape(arguments: &mut Arguments<'_>) -> CommandResult<(bool, bool)> {
    let mut given = |name: &str| match arguments.any_or_null(name)? {
        None => Ok(false),
        Some(RawBsonRef::Document(document)) if name == "collation" && document.is_empty() => {
            Err(bad("optional field collation cannot be empty"))
        }
        Some(RawBsonRef::Document(_)) => Ok(true),
        Some(_) => {
            let kind = if name == "query" { "required" } else { "optional" };
            Err(bad(&format!("{kind} field {name} must be an object")))
        }
    };
    let query = given("query")?;
    let mut others = false;
    for name in ["sort", "projection", "collation"] {
        others |= given(name)?;
    }
    Ok((query, others))
}

fn bad(text: &str) -> CommandError {
    CommandError::new(Code::BadValue, text)
}

async fn clear(call: &Call<'_>, name: &'static str) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments(name);
    let (query, others) = query_shape(&mut arguments)?;
    arguments.finish()?;
    if others && !query {
        return Err(bad("sort, projection or collation provided without query"));
    }
    call.refuse_view(&namespace).await?;
    Ok(Answer::done())
}

async fn list_filters(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    call.arguments("planCacheListFilters").finish()?;
    call.refuse_view(&namespace).await?;
    let mut writer = Writer::new();
    writer.array("filters", std::iter::empty::<&str>());
    Ok(writer.into())
}

async fn set_filter(call: &Call<'_>) -> CommandResult<Answer> {
    call.request.namespace()?;
    let mut arguments = call.arguments("planCacheSetFilter");
    let (query, _) = query_shape(&mut arguments)?;
    let indexes = arguments.any_or_null("indexes")?;
    arguments.finish()?;
    match indexes {
        None => return Err(bad("required field indexes missing")),
        Some(RawBsonRef::Array(indexes)) => {
            let indexes = indexes.into_iter().collect::<Result<Vec<_>, _>>()?;
            if indexes.is_empty() {
                return Err(bad("required field indexes must contain at least one index"));
            }
            let is_index = |index: &RawBsonRef<'_>| match index {
                RawBsonRef::Document(key) => !key.is_empty(),
                RawBsonRef::String(name) => !name.is_empty(),
                _ => false,
            };
            if !indexes.iter().all(is_index) {
                return Err(bad("each item in indexes must be an object or string, and not empty"));
            }
        }
        Some(_) => return Err(bad("required field indexes must be an array")),
    }
    if !query {
        return Err(bad("required field query missing"));
    }
    let text = "index filters are not supported: give the index as 'hint' with each request";
    Err(CommandError::new(Code::CommandNotSupported, text))
}

/// Checks the options of the stage `$planCacheStats`, which returns no documents.
pub(super) fn check_stage(options: RawBsonRef<'_>) -> CommandResult<()> {
    let failed = |text: String| Err(CommandError::new(Code::FailedToParse, text));
    let RawBsonRef::Document(document) = options else {
        return failed(format!("$planCacheStats value must be an object. Found: {}", type_name(options)));
    };
    let mut arguments = Arguments::of_document("$planCacheStats", document)?;
    let all_hosts = arguments.flag("allHosts")?.unwrap_or(false);
    arguments.finish()?;
    if all_hosts {
        return failed("$planCacheStats stage supports allHosts parameter only for sharded clusters".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;

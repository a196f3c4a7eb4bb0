//! `createIndexes`: creates indexes, and their collection if it does not exist.

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::{CreateIndexes, IndexCounts, IndexSpec};

use super::{Access, Call, Command, InTransaction, Properties};
use crate::arguments::{Arguments, as_integer};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "createIndexes",
    aliases: &[],
    help: "creates indexes",
    access: Access::Write,
    needs: Needs::Collection(&[Action::Structure]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties { in_transaction: InTransaction::Allowed, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

/// The number of indexes of one collection, as in MongoDB.
const INDEXES_MAX: usize = 64;

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("createIndexes");
    let indexes = arguments.documents("indexes")?;
    let indexes = arguments.required("indexes", indexes)?;
    // commitQuorum is about the members of a replica set.
    arguments.ignored(&["commitQuorum"])?;
    let lenient = arguments.flag("ignoreUnknownIndexOptions")?.unwrap_or(false);
    arguments.finish()?;
    if indexes.is_empty() {
        return Err(CommandError::new(Code::BadValue, "Must specify at least one index to create"));
    }
    if indexes.len() > INDEXES_MAX {
        return Err(CommandError::new(Code::BadValue, format!("a collection has at most {INDEXES_MAX} indexes")));
    }
    let indexes = indexes.into_iter().map(|index| read(index, lenient)).collect::<CommandResult<Vec<_>>>()?;
    let store = call.store();
    let existed = store.list_collections(namespace.database()).await?;
    let existed = existed.iter().any(|info| info.name == namespace.collection());
    let IndexCounts { before, after } = store.create_indexes(CreateIndexes { namespace, indexes }).await?;
    let mut writer = Writer::new();
    writer.put("numIndexesBefore", i32::try_from(before).unwrap_or(i32::MAX));
    writer.put("numIndexesAfter", i32::try_from(after).unwrap_or(i32::MAX));
    writer.put("createdCollectionAutomatically", !existed);
    if before == after {
        writer.put("note", "all indexes already exist");
    }
    Ok(writer.into())
}

/// Reads the definition of an index. If `lenient`, unknown options are ignored, which old clients send.
fn read(document: &RawDocument, lenient: bool) -> CommandResult<IndexSpec> {
    let mut arguments = Arguments::of_document("createIndexes.indexes", document)?;
    let Some(key) = arguments.document("key")?.map(ToOwned::to_owned) else {
        let text =
            "Error in specification :: caused by :: The 'key' field is a required property of an index specification";
        return Err(CommandError::new(Code::FailedToParse, text));
    };
    let name = arguments.text("name")?;
    let name = match name {
        Some("") => return Err(CommandError::new(Code::CannotCreateIndex, "The index name cannot be empty")),
        Some(name) => name.to_owned(),
        None => {
            let specification = handfast_mql::text::document(document);
            let text = format!(
                "Error in specification {specification} :: caused by :: The 'name' field is a required property of an index specification"
            );
            return Err(CommandError::new(Code::FailedToParse, text));
        }
    };
    let expire_after_seconds = match arguments.any("expireAfterSeconds")? {
        None => None,
        Some(value) => match as_integer(value) {
            Some(seconds) => Some(seconds),
            None => {
                let text = "TTL index 'expireAfterSeconds' option must be numeric";
                return Err(CommandError::new(Code::CannotCreateIndex, text));
            }
        },
    };
    if let Some(version) = arguments.integer("v")?
        && !(1..=2).contains(&version)
    {
        let text = format!("Invalid index specification; cannot create an index with v={version}");
        return Err(CommandError::new(Code::CannotCreateIndex, text));
    }
    let spec = IndexSpec {
        name,
        key,
        unique: arguments.lenient_flag("unique")?.unwrap_or(false),
        sparse: arguments.lenient_flag("sparse")?.unwrap_or(false),
        partial_filter: arguments.document("partialFilterExpression")?.map(ToOwned::to_owned),
        expire_after_seconds,
        hidden: arguments.lenient_flag("hidden")?.unwrap_or(false),
        collation: arguments.collation()?,
        background: arguments.lenient_flag("background")?,
    };
    if spec.is_id() && arguments.any("unique")?.is_some() {
        let specification = handfast_mql::text::document(document);
        let text =
            format!("The field 'unique' is not valid for an _id index specification. Specification: {specification}");
        return Err(CommandError::new(Code::InvalidIndexSpecificationOption, text));
    }
    // Old clients send the namespace.
    arguments.ignored(&["ns"])?;
    arguments.unsupported(&[
        "2dsphereIndexVersion",
        "bits",
        "bucketSize",
        "clustered",
        "default_language",
        "dropDups",
        "language_override",
        "max",
        "min",
        "prepareUnique",
        "storageEngine",
        "textIndexVersion",
        "weights",
        "wildcardProjection",
    ])?;
    check_kinds(&spec)?;
    // Unknown options of an index have another code than unknown fields of a command.
    if lenient {
        return Ok(spec);
    }
    arguments.finish().map_err(|error| CommandError { code: Code::InvalidIndexSpecificationOption, ..error })?;
    Ok(spec)
}

/// Refuses text, geospatial and wildcard indexes.
fn check_kinds(spec: &IndexSpec) -> CommandResult<()> {
    for element in &spec.key {
        let (field, kind) = element?;
        if let RawBsonRef::String(kind) = kind
            && kind != "hashed"
        {
            let text = format!("indexes of type '{kind}' are not supported");
            return Err(CommandError::new(Code::CannotCreateIndex, text));
        }
        if field.as_str().split('.').any(|part| part == "$**") {
            return Err(CommandError::new(Code::CannotCreateIndex, "wildcard indexes are not supported"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

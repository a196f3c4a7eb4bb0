//! `validateDBMetadata`: lists the definitions in databases that the Stable API does not have.
//!
//! With `strict` these are sparse indexes: the server has no text and geo indexes, and no view has a
//! stage that the API does not have. Nothing of the version 1 is deprecated.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_store::Namespace;

use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::{Needs, Target, Visitor};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::Request;
use crate::writer::{Writer, decimal};

pub(crate) const COMMAND: Command = Command {
    name: "validateDBMetadata",
    aliases: &[],
    help: "lists definitions that the Stable API does not have",
    access: Access::Read,
    needs: Needs::Visited(needs),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// The size of the errors of one reply. Further ones are left out, which `hasMoreErrors` says.
const ERRORS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Visits the database that the command names, or all of them.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let database = request.body.get_str("db").unwrap_or_default();
    visitor(Action::Validate, Target { database, collection: "" })
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("validateDBMetadata");
    let api = arguments.document("apiParameters")?;
    let database = arguments.text("db")?;
    let collections = arguments.array("collections")?;
    arguments.finish()?;
    let api = call.arguments("validateDBMetadata").required("apiParameters", api)?;
    let strict = read_api(api)?;
    let mut names = Vec::new();
    for name in collections.into_iter().flatten() {
        let RawBsonRef::String(name) = name? else {
            let text =
                "BSON field 'validateDBMetadata.collections' has elements of a wrong type, expected type 'string'";
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        names.push(name);
    }
    let databases = match database {
        Some(database) => vec![database.to_owned()],
        None => call.store().list_databases().await?,
    };
    let mut writer = Writer::new();
    writer.begin_array("apiVersionErrors");
    let (mut place, mut has_more) = (0, false);
    for database in databases.iter().filter(|_| strict) {
        for collection in call.store().list_collections(database).await? {
            let is_meant = names.is_empty() || names.contains(&collection.name.as_str());
            if !is_meant || collection.options.view.is_some() {
                continue;
            }
            let namespace = Namespace::new(database, collection.name)?;
            let indexes = match call.store().list_indexes(&namespace).await {
                // It was dropped meanwhile.
                Err(error) if error.code() == Code::NamespaceNotFound => continue,
                indexes => indexes?,
            };
            for index in indexes.iter().filter(|index| index.spec.sparse) {
                if writer.len() > ERRORS_BYTES_MAX {
                    has_more = true;
                    continue;
                }
                let mut digits = [0; 20];
                writer.begin_document(decimal(place, &mut digits)).put("ns", namespace.to_string());
                let text = format!("The index with name {} is not allowed in API version 1.", index.spec.name);
                writer.put("code", Code::APIStrictError.0).put("codeName", &*Code::APIStrictError.name());
                writer.put("errmsg", text).end();
                place += 1;
            }
        }
    }
    writer.end().put_some("hasMoreErrors", has_more.then_some(true));
    Ok(writer.into())
}

/// Returns whether what the API does not have is an error.
fn read_api(api: &bson::RawDocument) -> CommandResult<bool> {
    let mut arguments = Arguments::of_document("validateDBMetadata.apiParameters", api)?;
    let version = arguments.text("version")?;
    let strict = arguments.flag("strict")?.unwrap_or(false);
    arguments.flag("deprecationErrors")?;
    let version = arguments.required("version", version)?;
    arguments.finish()?;
    if version != "1" {
        return Err(CommandError::new(Code::APIVersionError, "API version must be \"1\""));
    }
    Ok(strict)
}

#[cfg(test)]
mod tests;

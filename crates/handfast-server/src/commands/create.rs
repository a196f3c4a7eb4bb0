//! `create`: creates an empty collection.

use bson::RawDocument;
use handfast_mql::Code;
use handfast_store::{CollectionOptions, ModifyValidator, Namespace, ValidationAction, ValidationLevel};

use super::{Access, Call, Command, InTransaction, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "create",
    aliases: &[],
    help: "creates a collection",
    access: Access::Write,
    needs: Needs::Collection(&[Action::Structure]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties { in_transaction: InTransaction::Allowed, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("create");
    arguments.simple_collation()?;
    // The options that request a kind of collection come before those that describe it, so that the message names the main option.
    arguments.unsupported(&["viewOn", "pipeline"])?;
    arguments.unsupported(&["timeseries", "clusteredIndex", "expireAfterSeconds"])?;
    arguments.unsupported(&["capped", "size", "max"])?;
    let options = CollectionOptions::default().modified(&read_validator(&mut arguments, &namespace)?);
    arguments.unsupported(&["changeStreamPreAndPostImages", "encryptedFields"])?;
    // Settings of another storage engine are refused unless they are empty.
    for name in ["storageEngine", "indexOptionDefaults"] {
        if !arguments.document_or_empty(name)?.is_empty() {
            let text =
                format!("the option 'create.{name}' is not supported: there is one storage engine, without options");
            return Err(CommandError::new(Code::NotImplemented, text));
        }
    }
    // Every collection has an index on _id.
    arguments.ignored(&["autoIndexId", "idIndex"])?;
    arguments.finish()?;
    // Outside of a transaction the collection may exist already; in a transaction the command has to create it.
    if call.transaction_number().is_some() && exists(call, &namespace).await? {
        let text = format!("Collection {namespace} already exists.");
        return Err(CommandError::new(Code::NamespaceExists, text));
    }
    call.store().create_collection(&namespace, options).await?;
    Ok(Answer::done())
}

/// Reads the options of the validator.
pub(super) fn read_validator(arguments: &mut Arguments<'_>, namespace: &Namespace) -> CommandResult<ModifyValidator> {
    let validator = arguments.document("validator")?.map(RawDocument::to_owned);
    if validator.as_ref().is_some_and(|validator| !validator.is_empty())
        && matches!(namespace.database(), "admin" | "config" | "local")
    {
        let text = format!(
            "Document validators are not allowed on collection {namespace} in the {} database",
            namespace.database()
        );
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    Ok(ModifyValidator {
        validator,
        level: enumeration(arguments, "validationLevel", ValidationLevel::of_name)?,
        action: enumeration(arguments, "validationAction", ValidationAction::of_name)?,
    })
}

fn enumeration<T>(
    arguments: &mut Arguments<'_>,
    name: &str,
    of_name: impl Fn(&str) -> Option<T>,
) -> CommandResult<Option<T>> {
    let Some(text) = arguments.text(name)? else { return Ok(None) };
    let value = of_name(text).ok_or_else(|| {
        CommandError::new(
            Code::BadValue,
            format!("Enumeration value '{text}' for field '{name}' is not a valid value."),
        )
    })?;
    Ok(Some(value))
}

async fn exists(call: &Call<'_>, namespace: &Namespace) -> CommandResult<bool> {
    match call.store().list_indexes(namespace).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Code::NamespaceNotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod validator_tests;

#[cfg(test)]
mod tests {
    use bson::raw::{CString, RawDocumentBuf};
    use bson::rawdoc;

    use crate::testing::{TestServer, check, check_refused};

    #[tokio::test]
    async fn unsupported_options_are_refused_by_name() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        for (command, option) in [
            (rawdoc! { "create": "x", "pipeline": [], "viewOn": "c" }, "viewOn"),
            (rawdoc! { "create": "x", "size": 1, "max": 1, "capped": true }, "capped"),
            (rawdoc! { "create": "x", "expireAfterSeconds": 1, "timeseries": {} }, "timeseries"),
        ] {
            let expected = (238, "NotImplemented".to_owned(), format!("the option 'create.{option}' is not supported"));
            assert_eq!(client.refused("d", command).await, expected);
        }
    }

    #[tokio::test]
    async fn an_option_of_the_storage_engine_is_refused_unless_it_is_empty() {
        let mut server = TestServer::checked();
        let mut client = server.connect();
        for option in ["storageEngine", "indexOptionDefaults"] {
            let create = |value: RawDocumentBuf| {
                let mut create = rawdoc! { "create": option };
                create.append(CString::try_from(option).unwrap(), value);
                create
            };
            check_refused(&mut client, create(rawdoc! { "wiredTiger": {} }), 238, option).await;
            check(&mut client, create(rawdoc! {}), rawdoc! {}).await;
        }
    }
}

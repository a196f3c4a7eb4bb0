//! `create`: creates an empty collection, or a view.

use bson::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::view::namespaces_read;
use handfast_store::{
    CollectionOptions, ModifyValidator, ModifyView, Namespace, ValidationAction, ValidationLevel, ViewDefinition,
};

use super::{Access, Call, Command, InTransaction, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::{Needs, Target, Visitor, is_protected, visit_pipeline};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::Request;

pub(crate) const COMMAND: Command = Command {
    name: "create",
    aliases: &[],
    help: "creates a collection or a view",
    access: Access::Write,
    needs: Needs::Visited(visit),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties { in_transaction: InTransaction::Allowed, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

fn visit(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let target = Target { database: request.database, collection: request.subject.as_str().unwrap_or("") };
    visitor(Action::Structure, target)?;
    visit_view(request, visitor)
}

/// Visits what the view reads that a command defines: otherwise a user could read through it what it cannot read itself.
pub(super) fn visit_view(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let database = request.database;
    for element in request.body {
        match element? {
            (name, RawBsonRef::String(collection)) if name == "viewOn" => {
                visitor(Action::Find, Target { database, collection })?;
            }
            (name, pipeline) if name == "pipeline" => visit_pipeline(database, pipeline, visitor)?,
            _ => {}
        }
    }
    Ok(())
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("create");
    match read_view(&mut arguments, &namespace)? {
        ModifyView { on: Some(on), pipeline } => {
            let view =
                ViewDefinition { on, pipeline: pipeline.unwrap_or_default(), collation: arguments.new_collation()? };
            return create_view(call, arguments, &namespace, view).await;
        }
        ModifyView { on: None, pipeline: Some(_) } => {
            let text = "'pipeline' requires 'viewOn' to also be specified";
            return Err(CommandError::new(Code::InvalidOptions, text));
        }
        ModifyView { on: None, pipeline: None } => {}
    }
    let collation = arguments.new_collation()?;
    // The options that request a kind of collection come before those that describe it, so that the message names the main option.
    arguments.unsupported(&["timeseries", "clusteredIndex", "expireAfterSeconds"])?;
    arguments.unsupported(&["capped", "size", "max"])?;
    let options = CollectionOptions { collation, ..CollectionOptions::default() }
        .modified(&read_validator(&mut arguments, &namespace)?);
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

/// Creates a view. The options of collections are refused beside it.
async fn create_view(
    call: &Call<'_>,
    mut arguments: Arguments<'_>,
    namespace: &Namespace,
    view: ViewDefinition,
) -> CommandResult<Answer> {
    let refused =
        |name: &str| CommandError::new(Code::InvalidOptions, format!("option not supported on a view: {name}"));
    for name in OPTIONS_OF_COLLECTIONS {
        if arguments.any(name)?.is_some() {
            return Err(refused(name));
        }
    }
    arguments.finish()?;
    let options = CollectionOptions { view: Some(view), ..CollectionOptions::default() };
    call.store().create_collection(namespace, options).await?;
    Ok(Answer::done())
}

const OPTIONS_OF_COLLECTIONS: [&str; 14] = [
    "capped",
    "size",
    "max",
    "timeseries",
    "clusteredIndex",
    "expireAfterSeconds",
    "validator",
    "validationLevel",
    "validationAction",
    "changeStreamPreAndPostImages",
    "encryptedFields",
    "storageEngine",
    "indexOptionDefaults",
    "idIndex",
];

/// Reads the definition of a view, without its collation.
///
/// # Errors
/// `BadValue` (2) for an empty `viewOn`; `Unauthorized` (13) if it names a collection of the server itself, which could be read through it.
pub(super) fn read_view(arguments: &mut Arguments<'_>, namespace: &Namespace) -> CommandResult<ModifyView> {
    let on = arguments.text("viewOn")?;
    if on == Some("") {
        return Err(CommandError::new(Code::BadValue, "'viewOn' cannot be empty"));
    }
    // Not from a document sequence, which the check of the rights does not visit.
    let pipeline = arguments.array("pipeline")?.map(|stages| {
        let stage = |stage: RawBsonRef<'_>| stage.as_document().map(RawDocument::to_owned).ok_or_else(no_stage);
        stages.into_iter().map(|element| stage(element?)).collect::<CommandResult<Vec<_>>>()
    });
    let view = ModifyView { on: on.map(str::to_owned), pipeline: pipeline.transpose()? };
    let read = ViewDefinition {
        on: view.on.clone().unwrap_or_else(|| namespace.collection().to_owned()),
        pipeline: view.pipeline.clone().unwrap_or_default(),
        collation: None,
    };
    match namespaces_read(namespace.database(), &read)?.iter().find(|read| is_protected(read)) {
        Some(read) => Err(CommandError::new(Code::Unauthorized, format!("a view cannot read {read}"))),
        None => Ok(view),
    }
}

fn no_stage() -> CommandError {
    CommandError::new(Code::TypeMismatch, "Each element of the 'pipeline' array must be an object")
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
        Err(error) if error.code() == Code::CommandNotSupportedOnView => Ok(true),
        Err(error) if error.code() == Code::NamespaceNotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod collation_tests;
#[cfg(test)]
mod validator_tests;
#[cfg(test)]
mod view_tests;

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

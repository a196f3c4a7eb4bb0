//! `getClusterParameter` and `setClusterParameter`: the parameters that all servers of a cluster share.
//!
//! They have MongoDB's default values, which describe this server, and cannot be changed: `setClusterParameter` accepts the values
//! that they have, and refuses others.

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Timestamp, rawdoc};
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;
use handfast_mql::order::compare_documents;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const GET: Command = Command {
    name: "getClusterParameter",
    aliases: &[],
    help: "returns parameters that all servers of a cluster share",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(get(call)),
};

pub(crate) const SET: Command = Command {
    name: "setClusterParameter",
    help: "accepts the values that the parameters of a cluster have, and refuses others",
    needs: Needs::Server(Action::Control),
    run: |call| Box::pin(set(call)),
    ..GET
};

/// A name, and a function that returns the value.
type Parameter = (&'static str, fn() -> RawDocumentBuf);

/// The parameters by name.
const PARAMETERS: [Parameter; 2] = [
    // There are no documents before and after changes that could expire.
    ("changeStreamOptions", || rawdoc! { "preAndPostImages": { "expireAfterSeconds": "off" } }),
    // There is no time limit of reads without maxTimeMS.
    ("defaultMaxTimeMS", || rawdoc! { "readOperations": 0_i64 }),
];

fn find(name: &str) -> CommandResult<Parameter> {
    let found = PARAMETERS.into_iter().find(|(known, _)| *known == name);
    found.ok_or_else(|| CommandError::new(Code::NoSuchKey, format!("Unknown server parameter: {name}")))
}

async fn get(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("getClusterParameter").finish()?;
    let asked = match call.request.subject {
        RawBsonRef::String("*") => PARAMETERS.to_vec(),
        RawBsonRef::String(name) => vec![find(name)?],
        RawBsonRef::Array(names) => {
            let names = names.into_iter().map(|name| match name? {
                RawBsonRef::String(name) => find(name),
                other => Err(mismatch(other, "type 'string'")),
            });
            names.collect::<CommandResult<Vec<_>>>()?
        }
        other => return Err(mismatch(other, "types '[array, string]'")),
    };
    if asked.is_empty() {
        let text = "Must supply at least one cluster server parameter name to getClusterParameter";
        return Err(CommandError::new(Code::BadValue, text));
    }
    let mut writer = Writer::new();
    writer.array("clusterParameters", asked.iter().map(|(name, value)| describe(name, &value())));
    Ok(writer.into())
}

fn describe(name: &str, value: &RawDocumentBuf) -> RawDocumentBuf {
    let mut writer = Writer::new();
    // As in MongoDB, the time of a value that was never set is zero.
    writer.put("_id", name).put("clusterParameterTime", Timestamp { time: 0, increment: 0 }).put_all(value);
    writer.finish()
}

fn mismatch(value: RawBsonRef<'_>, expected: &str) -> CommandError {
    let text = format!(
        "BSON field 'getClusterParameter.getClusterParameter' is the wrong type '{}', expected {expected}",
        type_name(value)
    );
    CommandError::new(Code::TypeMismatch, text)
}

async fn set(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("setClusterParameter").finish()?;
    let RawBsonRef::Document(given) = call.request.subject else {
        let text = format!(
            "BSON field 'setClusterParameter.setClusterParameter' is the wrong type '{}', expected type 'object'",
            type_name(call.request.subject)
        );
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let mut elements = given.iter();
    let (Some(element), None) = (elements.next().transpose()?, elements.next()) else {
        let text = "setClusterParameter takes exactly one parameter";
        return Err(CommandError::new(Code::InvalidOptions, text));
    };
    let (name, value) = (element.0.as_str(), element.1);
    let (_, current) = find(name)?;
    let RawBsonRef::Document(value) = value else {
        return Err(CommandError::new(Code::BadValue, "Cluster parameter value must be an object"));
    };
    let current = current();
    if compare_documents(value, &current).is_ne() {
        let text = format!(
            "the cluster parameter '{name}' cannot be changed: its value is {}",
            handfast_mql::text::document(&current)
        );
        return Err(CommandError::new(Code::CommandNotSupported, text));
    }
    Ok(Answer::done())
}

#[cfg(test)]
mod tests;

//! The document of a transaction.

use bson::{Bson, DateTime, Document};

use super::options::Fields;
use super::{Plan, State};
use crate::steps::Steps;
use crate::value::integer;
use crate::{Error, Result};

/// A transaction as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its `_id`.
    pub id: Bson,
    /// Its state.
    pub state: State,
    /// The time of the last change of its state.
    pub last_modified: DateTime,
    /// The application that carries it out, or has done so.
    pub application: Option<String>,
    /// The reason why it was canceled, or is to be canceled.
    pub reason: Option<String>,
    /// The `_id` of the transaction that takes it back; `None` if none does.
    pub compensation: Option<Bson>,
    /// The `_id` of the transaction that it takes back; `None` if it is no compensation.
    pub compensates: Option<Bson>,
    /// The revision of the settings that it was claimed by, unless that is the first one.
    pub settings: Option<i64>,
    /// Its plan. If that cannot be read, nothing is carried out, and this is a description of the error.
    pub plan: Result<Plan, String>,
}

impl Record {
    pub(super) fn read(steps: &Steps, document: &Document, fields: &Fields) -> Result<Self> {
        let damaged = |what: String| steps.damaged(document, what);
        let state = document.get_str(&fields.state).map_err(|_| damaged(format!("it has no {}", fields.state)))?;
        let text = |name: &String| document.get_str(name).ok().map(str::to_owned);
        Ok(Record {
            id: document.get("_id").cloned().unwrap_or(Bson::Null),
            state: state.parse().map_err(|error| damaged(format!("its state is {state}, and {error}")))?,
            last_modified: *document
                .get_datetime(&fields.last_modified)
                .map_err(|_| damaged(format!("it has no date {}", fields.last_modified)))?,
            application: text(&fields.application),
            reason: text(&fields.reason),
            compensation: document.get(&fields.compensation).cloned(),
            compensates: document.get(&fields.compensates).cloned(),
            settings: match document.get(&fields.settings) {
                None => None,
                Some(_) => Some(integer(document, &fields.settings).map_err(|error| damaged(error.to_string()))?),
            },
            plan: Plan::from_document(document, fields),
        })
    }

    pub(super) fn plan(&self) -> Result<&Plan> {
        self.plan.as_ref().map_err(|what| Error::invalid(format!("transaction {}: {what}", self.id)))
    }
}

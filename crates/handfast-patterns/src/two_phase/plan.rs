//! The plan of a transaction: a transfer, or an update for each of several participants.

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::escape::{escaped, unescaped};
use super::options::{Accounts, Fields, PendingFields, TwoPhaseOptions};
use crate::update::{ensure_filter, ensure_possible};
use crate::value::key_of;
use crate::{Error, Result};

/// Limit on the participants of one transaction: each takes two operations, and all are in one document.
pub const PARTICIPANTS_MAX: usize = 1000;

/// A transfer of an amount from one account to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The `_id` of the account that pays.
    pub source: Bson,
    /// The `_id` of the account that is paid.
    pub destination: Bson,
    /// The amount, more than 0 and in the smallest unit of the currency.
    pub value: i64,
}

impl Transfer {
    /// Creates a transfer from one account to another.
    pub fn new(source: impl Into<Bson>, destination: impl Into<Bson>, value: i64) -> Self {
        Transfer { source: source.into(), destination: destination.into(), value }
    }

    /// Returns the transfer in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Transfer { source: self.destination, destination: self.source, value: self.value }
    }
}

/// A document that a transaction changes, with the update operators of its changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Participant {
    /// The collection of the document.
    pub namespace: Namespace,
    /// Its `_id`.
    pub id: Bson,
    /// The update.
    pub apply: Document,
    /// The inverse update, which must be right whatever other processes have changed meanwhile.
    pub inverse: Document,
    /// The update after all participants were updated; empty for none.
    pub finish: Document,
    /// The condition of the update; if it does not hold the transaction is canceled. Empty for none.
    pub guard: Document,
}

impl Participant {
    /// Creates a participant with an update and its inverse.
    pub fn new(namespace: Namespace, id: impl Into<Bson>, apply: Document, inverse: Document) -> Self {
        Participant { namespace, id: id.into(), apply, inverse, finish: Document::new(), guard: Document::new() }
    }

    /// Creates a participant that adds a number to a field.
    pub fn increment(namespace: Namespace, id: impl Into<Bson>, field: &str, by: i64) -> Self {
        let change = |by: i64| doc! { "$inc": { field: by } };
        Participant::new(namespace, id, change(by), change(by.wrapping_neg()))
    }

    /// Makes the update only if the document matches this filter.
    #[must_use]
    pub fn guarded(self, guard: Document) -> Self {
        Participant { guard, ..self }
    }

    /// Adds an update that is made once every participant has its first one.
    #[must_use]
    pub fn finished_by(self, finish: Document) -> Self {
        Participant { finish, ..self }
    }
}

/// The plan of a transaction.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are transfers")]
pub enum Plan {
    /// A transfer from one account to another.
    Transfer(Transfer),
    /// An update for each of several documents.
    General(Vec<Participant>),
}

impl From<Transfer> for Plan {
    fn from(transfer: Transfer) -> Self {
        Plan::Transfer(transfer)
    }
}

impl From<Vec<Participant>> for Plan {
    fn from(participants: Vec<Participant>) -> Self {
        Plan::General(participants)
    }
}

impl Plan {
    /// Returns the documents and their updates, checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a plan that cannot be carried out: it has one document twice (whose second update could
    /// not be told from the first), a collection that the options do not name, or an amount that is not more than 0.
    pub(super) fn participants(&self, options: &TwoPhaseOptions) -> Result<Vec<Participant>> {
        let participants = match self {
            Plan::Transfer(transfer) => transfer_participants(transfer, &options.accounts)?,
            Plan::General(participants) => participants.clone(),
        };
        if participants.is_empty() || participants.len() > PARTICIPANTS_MAX {
            return Err(Error::invalid(format!("a transaction has from 1 to {PARTICIPANTS_MAX} participants")));
        }
        let mut keys = Vec::with_capacity(participants.len());
        for Participant { namespace, id, .. } in &participants {
            if *namespace != options.accounts.namespace && !options.participants.contains(namespace) {
                return Err(Error::invalid(format!("{namespace} is not among the collections of the settings")));
            }
            keys.push((namespace, key_of(id)?));
        }
        keys.sort();
        if keys.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::invalid("a document takes part in a transaction once"));
        }
        Ok(participants)
    }

    /// Checks that each part of a new plan is one that a store can carry out on some document.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown operator, a guard that is no filter of single documents, and a change of `_id`.
    pub(super) fn check_operators(&self) -> Result<()> {
        let Plan::General(participants) = self else { return Ok(()) };
        for Participant { namespace, id, apply, inverse, finish, guard } in participants {
            let wrong = |part: &str, error: Error| {
                Error::invalid(format!("the {part} of participant {id} in {namespace} cannot be carried out: {error}"))
            };
            for (part, update) in [("apply", apply), ("inverse", inverse), ("finish", finish)] {
                if !update.is_empty() {
                    ensure_possible(update).map_err(|error| wrong(part, error))?;
                }
            }
            ensure_filter(guard).map_err(|error| wrong("guard", error))?;
        }
        Ok(())
    }

    /// Returns the plan of a transaction that takes this one back.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a participant with a `finish`, as its inverse takes back only `apply`.
    pub(super) fn reversed(self) -> Result<Self> {
        match self {
            Plan::Transfer(transfer) => Ok(Plan::Transfer(transfer.reversed())),
            Plan::General(participants) => {
                participants.into_iter().map(reversed).collect::<Result<_>>().map(Plan::General)
            }
        }
    }

    /// Returns the fields of the transaction's document that hold the plan.
    pub(super) fn to_document(&self, fields: &Fields) -> Result<Document> {
        match self {
            Plan::Transfer(Transfer { source, destination, value }) => Ok(doc! {
                &fields.source: source.clone(),
                &fields.destination: destination.clone(),
                &fields.value: *value,
            }),
            Plan::General(participants) => {
                let participants = participants.iter().map(participant_document).collect::<Result<Vec<_>>>()?;
                Ok(doc! { &fields.participants: participants })
            }
        }
    }

    /// Reads the plan of a transaction's document; the error is for people.
    pub(super) fn from_document(document: &Document, fields: &Fields) -> Result<Self, String> {
        if let Ok(participants) = document.get_array(&fields.participants) {
            let read = |value: &Bson| match value {
                Bson::Document(participant) => participant_of(participant),
                _ => Err("a participant is no document".to_owned()),
            };
            return participants.iter().map(read).collect::<Result<_, _>>().map(Plan::General);
        }
        let field = |name: &String| document.get(name).cloned().ok_or_else(|| format!("it has no {name}"));
        let value = match field(&fields.value)? {
            Bson::Int32(value) => i64::from(value),
            Bson::Int64(value) => value,
            // The shell of the seed writes all numbers as doubles.
            Bson::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => value as i64,
            other => return Err(format!("its {} is {other}, not an integer", fields.value)),
        };
        Ok(Plan::Transfer(Transfer { source: field(&fields.source)?, destination: field(&fields.destination)?, value }))
    }
}

fn transfer_participants(transfer: &Transfer, accounts: &Accounts) -> Result<Vec<Participant>> {
    let Accounts { namespace, balance, overdraft, pending } = accounts;
    let Transfer { source, destination, value } = transfer;
    if *value <= 0 {
        return Err(Error::invalid(format!("the value of a transfer is {value}, it must be more than 0")));
    }
    let participant = |id: &Bson, apply: &[(&String, i64)]| {
        let inverse: Vec<_> = apply.iter().map(|(field, by)| (*field, -by)).collect();
        Participant::new(namespace.clone(), id.clone(), increments(apply), increments(&inverse))
    };
    let (payer, payee) = match pending {
        None => (participant(source, &[(balance, -value)]), participant(destination, &[(balance, *value)])),
        Some(PendingFields { credits, debits }) => (
            participant(source, &[(balance, -value), (debits, *value)]).finished_by(increments(&[(debits, -value)])),
            participant(destination, &[(credits, *value)])
                .finished_by(increments(&[(balance, *value), (credits, -value)])),
        ),
    };
    let enough = doc! { balance: { "$gte": *value } };
    Ok(vec![if *overdraft { payer } else { payer.guarded(enough) }, payee])
}

fn increments(fields: &[(&String, i64)]) -> Document {
    let fields: Document = fields.iter().map(|(field, by)| ((*field).clone(), Bson::Int64(*by))).collect();
    doc! { "$inc": fields }
}

fn reversed(participant: Participant) -> Result<Participant> {
    if !participant.finish.is_empty() {
        return Err(Error::invalid(
            "a transaction with updates after its first ones (`finish`) cannot be reversed: begin one with a plan of its own",
        ));
    }
    let Participant { namespace, id, apply, inverse, .. } = participant;
    Ok(Participant::new(namespace, id, inverse, apply))
}

fn participant_document(participant: &Participant) -> Result<Document> {
    let Participant { namespace, id, apply, inverse, finish, guard } = participant;
    let mut document = doc! {
        "database": namespace.database(),
        "collection": namespace.collection(),
        "id": id.clone(),
        "apply": escaped(apply)?,
        "inverse": escaped(inverse)?,
    };
    for (name, part) in [("finish", finish), ("guard", guard)] {
        if !part.is_empty() {
            document.insert(name, escaped(part)?);
        }
    }
    Ok(document)
}

fn participant_of(document: &Document) -> Result<Participant, String> {
    let wrong = |name: &str| format!("the {name} of a participant is missing or invalid");
    let text = |name: &str| document.get_str(name).map_err(|_| wrong(name));
    let part = |name: &str| document.get_document(name).map(unescaped).map_err(|_| wrong(name));
    let namespace = Namespace::new(text("database")?, text("collection")?).map_err(|error| error.to_string())?;
    let id = document.get("id").cloned().ok_or_else(|| wrong("id"))?;
    let optional = |name: &str| if document.contains_key(name) { part(name) } else { Ok(Document::new()) };
    Ok(Participant {
        namespace,
        id,
        apply: part("apply")?,
        inverse: part("inverse")?,
        finish: optional("finish")?,
        guard: optional("guard")?,
    })
}

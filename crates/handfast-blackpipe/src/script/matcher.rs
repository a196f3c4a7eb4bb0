//! The requests that a scripted server gets, as values, and the conditions on them.

use std::fmt;

use bson::raw::CString;
use bson::{Document, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_wire::{Compressor, Flags, OpMsg};

/// Characters of a request that a report shows.
const SHOWN_CHARACTERS_MAX: usize = 1_000;

/// A request with its command: `{find: "orders", filter: {..}, $db: "shop"}`.
#[derive(Clone, PartialEq, Debug)]
pub struct ReceivedRequest {
    body: RawDocumentBuf,
    has_reply: bool,
    is_exhaust_allowed: bool,
    compressor: Option<Compressor>,
    member: Option<usize>,
    /// Whether the server executes it: a member that is not the primary refuses some.
    is_executed: bool,
}

impl ReceivedRequest {
    /// Returns a request with a reply.
    pub fn new(body: RawDocumentBuf) -> Self {
        ReceivedRequest {
            body,
            has_reply: true,
            is_exhaust_allowed: false,
            compressor: None,
            member: None,
            is_executed: true,
        }
    }

    /// Reads a message. Its lists of documents become array fields, as they were in the command of the application.
    pub(crate) fn of_message(message: &OpMsg<'_>) -> Self {
        let mut body = message.body.to_owned();
        for sequence in &message.sequences {
            let mut documents = RawArrayBuf::new();
            sequence.documents.iter().for_each(|document| documents.push((*document).to_owned()));
            // It came as a text with a null character at its end, and so it has none inside.
            if let Ok(name) = CString::try_from(sequence.identifier.to_owned()) {
                body.append(name, documents);
            }
        }
        let Flags { more_to_come, exhaust_allowed, .. } = message.flags;
        ReceivedRequest {
            has_reply: !more_to_come,
            is_exhaust_allowed: exhaust_allowed && !more_to_come,
            ..ReceivedRequest::new(body)
        }
    }

    /// Returns the request as it arrived compressed, or not.
    pub(super) fn compressed_by(self, compressor: Option<Compressor>) -> Self {
        ReceivedRequest { compressor, ..self }
    }

    /// Returns the compressor of the message, if it was compressed.
    pub fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// Returns whether the client accepts several replies, as for an exhaust cursor.
    pub fn is_exhaust_allowed(&self) -> bool {
        self.is_exhaust_allowed
    }

    /// Returns the request as a member of a replica set received it, which executes it or refuses it.
    pub(super) fn at(self, member: usize, is_executed: bool) -> Self {
        ReceivedRequest { member: Some(member), is_executed, ..self }
    }

    /// Returns the member that received the request, if the server is one of a [`ScriptedReplicaSet`](crate::ScriptedReplicaSet).
    pub fn member(&self) -> Option<usize> {
        self.member
    }

    pub(super) fn is_executed(&self) -> bool {
        self.is_executed
    }

    /// Returns the whole request.
    pub fn body(&self) -> &RawDocument {
        &self.body
    }

    /// Returns whether the client waits for a reply. It does not for an unacknowledged write.
    pub fn has_reply(&self) -> bool {
        self.has_reply
    }

    /// Returns the name of the command: the first field.
    pub fn command(&self) -> &str {
        self.body.iter_elements().next().and_then(Result::ok).map_or("", |element| element.key().as_str())
    }

    /// Returns the collection with the database, such as `shop.orders`, if it names one.
    pub fn collection(&self) -> Option<String> {
        crate::request::collection_of(self.command(), &self.body)
    }

    /// Returns a field by its path, such as `filter.status` or `documents.0._id`.
    pub fn get(&self, path: &str) -> Option<RawBsonRef<'_>> {
        let mut names = path.split('.');
        let mut value = self.body.get(names.next()?).ok()??;
        for name in names {
            value = match value {
                RawBsonRef::Document(document) => document.get(name).ok()??,
                RawBsonRef::Array(array) => array.get(name.parse().ok()?).ok()??,
                _ => return None,
            };
        }
        Some(value)
    }
}

impl fmt::Display for ReceivedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Document::try_from(&*self.body).map_or_else(|error| error.to_string(), |body| body.to_string());
        match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
            Some((end, _)) => write!(f, "{}..", text.get(..end).unwrap_or_default())?,
            None => f.write_str(&text)?,
        }
        write_member(f, self.member)
    }
}

fn write_member(f: &mut fmt::Formatter<'_>, member: Option<usize>) -> fmt::Result {
    member.map_or(Ok(()), |member| write!(f, " at member {member}"))
}

/// Conditions on a request, all of which have to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Matcher {
    command: Option<String>,
    collection: Option<String>,
    member: Option<usize>,
    fields: Vec<(String, RawBson)>,
    /// The paths of fields that the request does not have.
    absent: Vec<String>,
}

impl Matcher {
    /// Returns the condition that the command has this name.
    pub fn command(name: &str) -> Self {
        Matcher { command: Some(name.to_owned()), ..Matcher::any() }
    }

    /// Returns a matcher without a condition: each request matches.
    pub fn any() -> Self {
        Matcher { command: None, collection: None, member: None, fields: Vec::new(), absent: Vec::new() }
    }

    /// Adds the condition that the request is on this collection, which is written with its database, such as `shop.orders`.
    #[must_use]
    pub fn on(self, collection: &str) -> Self {
        Matcher { collection: Some(collection.to_owned()), ..self }
    }

    /// Adds the condition that this member of a [`ScriptedReplicaSet`](crate::ScriptedReplicaSet) receives the request. Without it, a request matches at each member
    /// that executes it: a write at the primary.
    #[must_use]
    pub fn at(self, member: usize) -> Self {
        Matcher { member: Some(member), ..self }
    }

    pub(super) fn member(&self) -> Option<usize> {
        self.member
    }

    /// Adds the condition that a field has a value. The field is named by its path, such as `filter.status` or `documents.0._id`. Numbers
    /// are equal if their values are, whatever their types.
    #[must_use]
    pub fn with(mut self, path: &str, value: impl Into<RawBson>) -> Self {
        self.fields.push((path.to_owned(), value.into()));
        self
    }

    /// Adds the condition that the request does not have a field. The field is named by its path.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.absent.push(path.to_owned());
        self
    }

    /// Returns whether a request meets all conditions.
    pub fn matches(&self, request: &ReceivedRequest) -> bool {
        self.command.as_deref().is_none_or(|command| command == request.command())
            && (self.collection.is_none() || self.collection == request.collection())
            && self.member.map_or(request.is_executed, |member| request.member == Some(member))
            && self.fields.iter().all(|(path, expected)| {
                request.get(path).is_some_and(|found| are_equal(found, expected.as_raw_bson_ref()))
            })
            && self.absent.iter().all(|path| request.get(path).is_none())
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command.as_deref().unwrap_or("any command"))?;
        if let Some(collection) = &self.collection {
            write!(f, " on {collection}")?;
        }
        write_member(f, self.member)?;
        for (path, value) in &self.fields {
            match bson::Bson::try_from(value.clone()) {
                Ok(value) => write!(f, ", {path} = {value}")?,
                Err(error) => write!(f, ", {path} = ({error})")?,
            }
        }
        for path in &self.absent {
            write!(f, ", without {path}")?;
        }
        Ok(())
    }
}

/// Returns whether two values are equal; numbers by their values, documents with their fields in the same order.
fn are_equal(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    match (one, other) {
        (RawBsonRef::Document(one), RawBsonRef::Document(other)) => {
            let (mut one, mut other) = (one.iter(), other.iter());
            loop {
                match (one.next(), other.next()) {
                    (None, None) => return true,
                    (Some(Ok((name, one))), Some(Ok((other_name, other))))
                        if name == other_name && are_equal(one, other) => {}
                    _ => return false,
                }
            }
        }
        (RawBsonRef::Array(one), RawBsonRef::Array(other)) => {
            let (mut one, mut other) = (one.into_iter(), other.into_iter());
            loop {
                match (one.next(), other.next()) {
                    (None, None) => return true,
                    (Some(Ok(one)), Some(Ok(other))) if are_equal(one, other) => {}
                    _ => return false,
                }
            }
        }
        _ => match (number(one), number(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        },
    }
}

/// Returns a number, exactly if it is a whole one of up to 53 bits.
fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) if number.unsigned_abs() < 1 << f64::MANTISSA_DIGITS => Some(number as f64),
        RawBsonRef::Double(number) => Some(number),
        _ => None,
    }
}

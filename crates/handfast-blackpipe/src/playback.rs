//! Answers requests from a recording.
//!
//! ```text
//! request                      the first equal one of the recording that has not been answered
//! with its reply               the reply
//! without its reply            the connection is closed, as the recorded program saw it
//! none                         an error, with the nearest request of the recording
//! ```
//!
//! Two requests are equal if their commands and fields are, without those that differ from run to run. It does not matter on which
//! connection and in which order they arrive, so that a program with threads can be played.

mod difference;
mod server;

use std::collections::{BTreeMap, VecDeque};

use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use serde_json::{Map, Value};

use self::difference::{Difference, differences};
use crate::recording::{RecordedMessage, extended, parsed};
use crate::{Error, Result};

pub use server::{PlaybackHandle, PlaybackServer};

/// The fields of a request that differ from run to run: of sessions, clocks and the stable API.
const IGNORED: [&str; 8] = [
    "lsid",
    "$clusterTime",
    "txnNumber",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "readConcern.afterClusterTime",
    "readConcern.atClusterTime",
];
/// Characters of a request or a value that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 500;

/// A request of a recording.
struct RecordedRequest {
    number: u64,
    fields: Map<String, Value>,
    reply: Option<RawDocumentBuf>,
    has_arrived: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlayedAnswer {
    Reply(RawDocumentBuf),
    /// The recorded program got none.
    NoReply,
    /// The recording does not have the request; a sentence says so.
    NotRecorded(String),
}

/// A recording, and what has arrived of it.
pub struct Playback {
    hello: Document,
    requests: Vec<RecordedRequest>,
    /// The requests that have not arrived, by their text. They are answered in their order.
    open: BTreeMap<String, VecDeque<usize>>,
    /// Names and paths of fields that are not compared.
    ignored: Vec<String>,
    not_recorded: u64,
}

impl Playback {
    /// Reads a recording. `ignored` has further fields that differ from run to run: a name, such as `_id`, wherever the field is, or a path from
    /// the command on, such as `documents._id`.
    ///
    /// # Errors
    /// [`Error::Recording`] if a line is none, or there is no handshake.
    pub fn parse(text: &str, ignored: Vec<String>) -> Result<Self> {
        let mut playback =
            Playback { hello: Document::new(), requests: Vec::new(), open: BTreeMap::new(), ignored, not_recorded: 0 };
        let mut indexes = BTreeMap::new();
        for (line, message) in RecordedMessage::parse(text)? {
            let wrong = |reason: String| Error::Recording { line, reason };
            match message {
                RecordedMessage::Hello(reply) => {
                    playback.hello = parsed(&reply).map_err(|error| wrong(error.to_string()))?;
                }
                RecordedMessage::Request { request, command, .. } => {
                    let fields = playback.compared(&command).map_err(|error| wrong(error.to_string()))?;
                    let index = playback.requests.len();
                    if indexes.insert(request, index).is_some() {
                        return Err(wrong(format!("there is a request {request} before it")));
                    }
                    playback.open.entry(text_of(&fields)).or_default().push_back(index);
                    playback.requests.push(RecordedRequest {
                        number: request,
                        fields,
                        reply: None,
                        has_arrived: false,
                    });
                }
                RecordedMessage::Reply { request, reply, .. } => {
                    let index = indexes.get(&request).and_then(|index| playback.requests.get_mut(*index));
                    index.ok_or_else(|| wrong(format!("there is no request {request} before it")))?.reply = Some(reply);
                }
            }
        }
        if playback.hello.is_empty() {
            let reason =
                "there is no handshake in the recording: record a program that connects with a driver".to_owned();
            return Err(Error::Recording { line: 1, reason });
        }
        Ok(playback)
    }

    /// Returns the number of requests in the recording.
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of requests that arrived and are not in the recording.
    pub fn not_recorded_count(&self) -> u64 {
        self.not_recorded
    }

    /// Returns the requests of the recording that have not arrived, each with its number.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.requests.iter().filter(|request| !request.has_arrived);
        missing.map(|request| format!("request {}: {}", request.number, shown(&request.fields))).collect()
    }

    /// Answers a request of the application.
    pub(crate) fn answer(&mut self, command: &RawDocument) -> PlayedAnswer {
        let fields = match self.compared(command) {
            Ok(fields) => fields,
            Err(error) => return self.not_recorded(error.to_string()),
        };
        let next = self.open.get_mut(&text_of(&fields)).and_then(VecDeque::pop_front);
        if let Some(request) = next.and_then(|index| self.requests.get_mut(index)) {
            request.has_arrived = true;
            return request.reply.clone().map_or(PlayedAnswer::NoReply, PlayedAnswer::Reply);
        }
        self.not_recorded(self.reason(&fields))
    }

    fn not_recorded(&mut self, reason: String) -> PlayedAnswer {
        self.not_recorded += 1;
        PlayedAnswer::NotRecorded(reason)
    }

    /// Returns a sentence about a request that the recording does not have.
    fn reason(&self, arrived: &Map<String, Value>) -> String {
        let of_command = |request: &&RecordedRequest| request.fields.keys().next() == arrived.keys().next();
        let compared =
            self.requests.iter().filter(of_command).map(|request| (request, differences(arrived, &request.fields)));
        // The first one of those that are equally near, and one that has not arrived before others.
        let nearest = compared.min_by_key(|(request, differences)| (differences.len(), request.has_arrived));
        let arrived = shown(arrived);
        match nearest {
            None => format!("the recording has no request with this command: {arrived}"),
            Some((request, differences)) if differences.is_empty() && request.has_arrived => {
                format!("the request arrived more often than it was recorded: {arrived}")
            }
            Some((request, differences)) => {
                let difference =
                    differences.first().map_or("the order of fields differs".to_owned(), Difference::sentence);
                let (number, recorded) = (request.number, shown(&request.fields));
                format!(
                    "the recording has no such request: {arrived}; the nearest is request {number}: {recorded}; {difference}"
                )
            }
        }
    }

    /// Returns the command and the fields that are compared. The command is the first of them; the order of the others means nothing.
    fn compared(&self, command: &RawDocument) -> Result<Map<String, Value>> {
        let Value::Object(mut fields) = extended(command)? else {
            return Ok(Map::new());
        };
        IGNORED.iter().for_each(|path| remove_at(&mut fields, path));
        self.ignored.iter().for_each(|path| remove(&mut fields, path));
        let name = fields.keys().next().cloned().unwrap_or_default();
        let mut sorted: Vec<(String, Value)> = fields.into_iter().collect();
        sorted.sort_by(|(left, _), (right, _)| (*left != name, left).cmp(&(*right != name, right)));
        Ok(sorted.into_iter().collect())
    }
}

/// Removes a field by its name wherever it is, or by its path.
fn remove(fields: &mut Map<String, Value>, path: &str) {
    match path.split_once('.') {
        Some(_) => remove_at(fields, path),
        None => {
            fields.shift_remove(path);
            fields.values_mut().for_each(|value| each_object(value, &mut |fields| remove(fields, path)));
        }
    }
}

/// Removes a field by its path from here on, through all elements of arrays.
fn remove_at(fields: &mut Map<String, Value>, path: &str) {
    let Some((name, rest)) = path.split_once('.') else {
        fields.shift_remove(path);
        return;
    };
    if let Some(value) = fields.get_mut(name) {
        each_object(value, &mut |fields| remove_at(fields, rest));
    }
}

/// Calls a function with the object, or with those in the array.
fn each_object(value: &mut Value, function: &mut dyn FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => function(fields),
        Value::Array(values) => values.iter_mut().for_each(|value| each_object(value, function)),
        _ => {}
    }
}

fn text_of(fields: &Map<String, Value>) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}

fn shown(fields: &Map<String, Value>) -> String {
    let relaxed = Bson::try_from(Value::Object(fields.clone())).map(Bson::into_relaxed_extjson);
    shortened(&relaxed.map_or_else(|_| text_of(fields), |value| value.to_string()))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} ..", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;

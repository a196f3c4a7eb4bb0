//! Searches that lists and pages share: a page of documents at a time, in the order of their ids.
//!
//! A list goes from the greatest id to the least, so that ids with a time begin with the newest. A page begins after the last document of the page before, and
//! not at a number, so that documents that come or go meanwhile shift nothing. Its cursor is the id of that document, as text.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bson::{Bson, Document, RawDocumentBuf, doc};

use super::Result;
use super::login::RequestClient;
use crate::problem::Problem;
use crate::request::Call;

/// The documents of a page, unless the request says another number.
pub(super) const LIMIT: u32 = 50;
/// Limit on the documents of a page.
pub(super) const LIMIT_MAX: u32 = 1_000;
/// The time that a search may take, in milliseconds.
pub(super) const TIME_MAX_MILLIS: i64 = 10_000;

/// A list of documents.
pub(super) struct List<'a> {
    pub(super) database: &'a str,
    pub(super) collection: &'a str,
    pub(super) filter: Document,
}

/// The part of a list that a request asks for.
pub(super) struct Position<'a> {
    after: Option<&'a str>,
    limit: u32,
}

/// A page of a list.
pub(super) struct Page {
    pub(super) documents: Vec<Document>,
    /// The cursor of the next page; `None` at the end.
    pub(super) next: Option<String>,
}

impl<'a> Position<'a> {
    /// Reads `after` and `limit` of the query.
    pub(super) fn read(call: &'a Call) -> Result<Self> {
        let limit = match call.query("limit") {
            None | Some("") => LIMIT,
            Some(text) => match text.parse() {
                Ok(limit) if (1..=LIMIT_MAX).contains(&limit) => limit,
                _ => {
                    let text = format!("limit must be an integer from 1 to {LIMIT_MAX}, and is {text:?}");
                    return Err(Problem::invalid(text));
                }
            },
        };
        Ok(Position { after: call.query("after").filter(|after| !after.is_empty()), limit })
    }
}

impl List<'_> {
    /// Reads a page.
    pub(super) async fn page(&self, client: &mut RequestClient, position: Position<'_>) -> Result<Page> {
        let mut filter = self.filter.clone();
        if let Some(after) = position.after {
            // An expression compares values of all types in the order of the list.
            let behind = doc! { "$expr": { "$lt": ["$_id", { "$literal": id_of_cursor(after)? }] } };
            filter = doc! { "$and": [filter, behind] };
        }
        let command = doc! { "find": self.collection, "filter": filter, "sort": { "_id": -1 }, "limit": i64::from(position.limit) + 1 };
        let found = find(client, self.database, command).await?;
        let mut documents = found.documents;
        let has_more = found.has_more || documents.len() > position.limit as usize;
        documents.truncate(position.limit as usize);
        let last = documents.last().and_then(|last| last.get("_id")).filter(|_| has_more);
        Ok(Page { next: last.map(cursor_of_id).transpose()?, documents })
    }
}

/// The documents of a search, and whether there are more, which did not fit into a reply.
pub(super) struct Found {
    pub(super) documents: Vec<Document>,
    pub(super) has_more: bool,
}

/// Runs `find` with a limit, and returns the documents of its first batch.
pub(super) async fn find(client: &mut RequestClient, database: &str, mut command: Document) -> Result<Found> {
    if let Some(limit) = command.get("limit").cloned() {
        command.insert("batchSize", limit);
    }
    command.insert("maxTimeMS", TIME_MAX_MILLIS);
    first_batch(client, database, command).await
}

/// Runs a command that opens a cursor, and returns the documents of its first batch.
pub(super) async fn first_batch(client: &mut RequestClient, database: &str, command: Document) -> Result<Found> {
    let collection = command.iter().next().map(|(_, value)| value.clone());
    let (documents, id) = documents_of(client.run(database, &command).await?, "firstBatch");
    if let Some(collection) = collection.filter(|_| id != 0) {
        client.run(database, &doc! { "killCursors": collection, "cursors": [id] }).await?;
    }
    Ok(Found { documents, has_more: id != 0 })
}

/// Returns the documents of a reply's batch, and its cursor, which is 0 at the end.
pub(super) fn documents_of(mut reply: Document, batch: &str) -> (Vec<Document>, i64) {
    let mut cursor = reply.get_document_mut("cursor").map(std::mem::take).unwrap_or_default();
    let batch = cursor.get_array_mut(batch).map(std::mem::take).unwrap_or_default();
    let documents = batch.into_iter().filter_map(|value| match value {
        Bson::Document(document) => Some(document),
        _ => None,
    });
    (documents.collect(), cursor.get_i64("id").unwrap_or_default())
}

/// Returns the number of documents that match.
pub(super) async fn count(
    client: &mut RequestClient,
    database: &str,
    collection: &str,
    filter: Document,
) -> Result<i64> {
    let command = doc! { "count": collection, "query": filter, "maxTimeMS": TIME_MAX_MILLIS };
    let reply = client.run(database, &command).await?;
    Ok(integer(&reply, "n"))
}

/// Returns a document by its id.
pub(super) async fn one(
    client: &mut RequestClient,
    database: &str,
    collection: &str,
    id: &Bson,
) -> Result<Option<Document>> {
    let command = doc! { "find": collection, "filter": { "_id": { "$eq": id } }, "limit": 1_i64 };
    Ok(find(client, database, command).await?.documents.into_iter().next())
}

/// Returns an integer of any type; 0 if there is none.
pub(super) fn integer(document: &Document, name: &str) -> i64 {
    match document.get(name) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        #[expect(clippy::cast_possible_truncation, reason = "counts are whole numbers")]
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    }
}

fn cursor_of_id(id: &Bson) -> Result<String> {
    let document = RawDocumentBuf::try_from(&doc! { "_id": id })
        .map_err(|error| Problem::invalid(format!("an id cannot be written as a cursor: {error}")))?;
    Ok(BASE64.encode(document.as_bytes()))
}

fn id_of_cursor(cursor: &str) -> Result<Bson> {
    let read = || {
        let document = RawDocumentBuf::from_bytes(BASE64.decode(cursor).ok()?).ok()?;
        Bson::try_from(document.get("_id").ok()??).ok()
    };
    read().ok_or_else(|| Problem::invalid("after is no cursor that a page of the list has returned as next"))
}

//! The patterns that a user can see, found by the records of their settings: `shop.mails.settings {_id: "job-queue", settings: {..}}`.

use bson::{Bson, Document, doc};

use super::Result;
use super::login::RequestClient;
use super::reads::{self, Found};
use crate::problem::ProblemKind;

/// The end of the names of collections with settings.
const SUFFIX: &str = ".settings";
/// Limit on the databases that are searched.
const DATABASES_MAX: usize = 1_000;
/// Limit on the patterns of a kind that are found.
const PATTERNS_MAX: usize = 500;
/// Limit on the records of settings that a search reads, with one request each.
const RECORDS_MAX: usize = 1_000;

/// The kinds of patterns, as their records name them.
pub(super) const QUEUE: &str = "job-queue";
pub(super) const LEDGER: &str = "ledger";
pub(super) const TWO_PHASE: &str = "two-phase";
pub(super) const SYNC_FLAG: &str = "sync-flag";

/// A pattern with its recorded settings.
pub(super) struct FoundPattern {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) settings: Document,
}

impl FoundPattern {
    /// Returns the name that the documents of the pattern have for a field.
    pub(super) fn field<'a>(&'a self, name: &'a str) -> &'a str {
        self.settings.get_document("fields").and_then(|fields| fields.get_str(name)).unwrap_or(name)
    }
}

/// Returns the databases that the user can see.
pub(super) async fn databases(client: &mut RequestClient) -> Result<Vec<String>> {
    let reply = client.run("admin", &doc! { "listDatabases": 1, "nameOnly": true }).await?;
    let databases = reply.get_array("databases").map(Vec::as_slice).unwrap_or_default();
    let names = databases.iter().filter_map(|database| database.as_document()?.get_str("name").ok());
    Ok(names.take(DATABASES_MAX).map(str::to_owned).collect())
}

/// Returns the names of the collections of a database, sorted; none if the user may not list them.
pub(super) async fn collections(client: &mut RequestClient, database: &str) -> Result<Vec<String>> {
    let command = doc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 10_000 } };
    let Found { documents, .. } = match reads::first_batch(client, database, command).await {
        Err(problem) if problem.kind == ProblemKind::Forbidden => return Ok(Vec::new()),
        found => found?,
    };
    let mut names: Vec<String> =
        documents.iter().filter_map(|found| found.get_str("name").ok()).map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the patterns of a kind in all databases that the user can see.
pub(super) async fn all(client: &mut RequestClient, kind: &str) -> Result<Vec<FoundPattern>> {
    let (mut patterns, mut looked) = (Vec::new(), 0);
    for database in databases(client).await? {
        for name in collections(client, &database).await? {
            let Some(collection) = name.strip_suffix(SUFFIX) else { continue };
            if patterns.len() == PATTERNS_MAX || looked == RECORDS_MAX {
                return Ok(patterns);
            }
            looked += 1;
            match settings(client, &database, &name, kind).await {
                Ok(Some(settings)) => {
                    patterns.push(FoundPattern {
                        database: database.clone(),
                        collection: collection.to_owned(),
                        settings,
                    });
                }
                Ok(None) => {}
                Err(problem) if problem.kind == ProblemKind::Forbidden => {}
                Err(problem) => return Err(problem),
            }
        }
    }
    Ok(patterns)
}

/// Returns the pattern of a kind in a collection; one with the default settings if none are recorded.
pub(super) async fn one(
    client: &mut RequestClient,
    database: &str,
    collection: &str,
    kind: &str,
) -> Result<FoundPattern> {
    let settings = settings(client, database, &format!("{collection}{SUFFIX}"), kind).await?.unwrap_or_default();
    Ok(FoundPattern { database: database.to_owned(), collection: collection.to_owned(), settings })
}

/// Reads the record of a kind; `None` if there is none.
async fn settings(client: &mut RequestClient, database: &str, records: &str, kind: &str) -> Result<Option<Document>> {
    let record = reads::one(client, database, records, &Bson::from(kind)).await?;
    Ok(record.map(|mut record| record.get_document_mut("settings").map(std::mem::take).unwrap_or_default()))
}

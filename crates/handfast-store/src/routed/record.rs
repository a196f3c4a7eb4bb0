//! The record of the rule in the stores that it joins.
//!
//! ```text
//! in the part of the rest   handfast.routing  { _id: "routing", set: "65f..", part: "main",
//!                                               routes: ["*=main", "shop.orders=orders"] }
//! in each of the others     handfast.routing  { _id: "routing", set: "65f..", part: "orders" }
//! ```
//!
//! The first line holds the rule. It is written once, and a process with another rule is refused: it would look for existing
//! documents in the wrong store, and two processes with different rules would each write where the other does not read. The other
//! lines say that a store is only a part: a process that opened it on its own ([`ensure_alone`]) would take a lock whose primary is
//! in another store for an abandoned one.
//!
//! Two processes that join stores for the first time at the same moment may have different stores for the rest. So the first write
//! of all is a claim, `{ _id: "claim", set, part, routes }`, in the part whose name sorts first, which is the same one for
//! both. A process that finds another rule claimed there has written nothing yet, and is refused.
//!
//! To change a rule, stop all processes, move the documents of the collections that change their part (dump and restore), delete
//! these records, and open the stores with the new rule, which checks all collections again.

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::Shared;
use crate::{DocumentStore, Error, Namespace, Result, StoreExt};

/// The database of the records, which is also that of the transactions' own collections.
pub const RECORD_DATABASE: &str = "handfast";
/// The collection of the records.
pub const RECORD_COLLECTION: &str = "routing";
/// The collection and the `_id` of the timestamp oracle of the engine `Percolator`.
pub(super) const ORACLE: &str = "oracle";
/// The field of the oracle's document with the name of the set that the store belongs to.
pub(super) const SET: &str = "set";
/// The record's `_id`.
const ID: &str = "routing";
/// The `_id` of the claim.
const CLAIM: &str = "claim";
/// The prefix of the temporary collections that test the capabilities of a server.
const TRIED: &str = "handfast_probe_";

/// The record of a store about its place in a set.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// The id of the set of stores that belong together.
    set: String,
    /// The name of the store in the set.
    part: String,
    /// The rule, recorded in the part of the rest only.
    routes: Option<Vec<String>>,
}

/// Checks that a store is no part of a routed store.
///
/// # Errors
/// `IllegalOperation` (20) if it is one.
pub async fn ensure_alone(store: &dyn DocumentStore) -> Result<()> {
    let Some(record) = Record::of(store, ID).await? else { return Ok(()) };
    let text = format!(
        "this is the store '{}' of several that are used together: open all of them, with the same routes as before, \
         because transactions over them have left parts of themselves in each",
        record.part
    );
    Err(Error::command(Code::IllegalOperation, text))
}

/// Returns whether a store is part of a routed store, or is about to be.
pub(super) async fn is_taken(store: &dyn DocumentStore) -> Result<bool> {
    Ok(Record::of(store, ID).await?.is_some() || Record::of(store, CLAIM).await?.is_some())
}

/// Writes the name of the set into the oracle's document, if there is one: a process that uses the store on its own gets no more
/// timestamps.
async fn name_set(shared: &Shared, change: RawDocumentBuf) -> Result<()> {
    let oracle = Namespace::new(RECORD_DATABASE, ORACLE)?;
    shared.at(shared.routing.rest()).update_one(&oracle, rawdoc! { "_id": ORACLE }, change).await.map(drop)
}

/// Checks the stores against their records, and writes the records that are missing.
pub(super) async fn check(shared: &Shared) -> Result<()> {
    let rest = shared.routing.rest();
    let mut records = all(shared).await?;
    let is_first = records.iter().any(Option::is_none);
    if is_first {
        ensure_in_place(shared).await?;
    }
    let first = match records[rest].take() {
        Some(first) => first,
        None => {
            ensure_unused(shared, &records)?;
            let set = claim(shared).await?;
            name_set(shared, rawdoc! { "$set": { "set": set.as_str() } }).await?;
            // Until now, a process that used the store on its own may have created a collection.
            if let Err(error) = ensure_in_place(shared).await {
                name_set(shared, rawdoc! { "$unset": { "set": "" } }).await?;
                return Err(error);
            }
            let record = Record { set, part: shared.routing.name(rest).to_owned(), routes: Some(routes(shared)) };
            record.put(&**shared.at(rest), ID).await?
        }
    };
    ensure_same_rule(shared, &first)?;
    for part in (0..shared.stores.len()).filter(|part| *part != rest) {
        let expected = Record::of_part(shared, part, &first);
        let found = match records[part].take() {
            Some(found) => found,
            None => expected.put(&**shared.at(part), ID).await?,
        };
        expected.ensure_is(&found)?;
    }
    if is_first {
        name_set(shared, rawdoc! { "$set": { "set": first.set.as_str() } }).await?;
    }
    Ok(())
}

/// Checks the stores against their records without writing; stores that were never joined are refused.
pub(super) async fn check_recorded(shared: &Shared) -> Result<()> {
    let rest = shared.routing.rest();
    let mut records = all(shared).await?;
    let Some(first) = records[rest].take() else {
        ensure_unused(shared, &records)?;
        return Err(refused("these stores were never used together".to_owned()));
    };
    ensure_same_rule(shared, &first)?;
    for (part, found) in records.into_iter().enumerate().filter(|(part, _)| *part != rest) {
        let expected = Record::of_part(shared, part, &first);
        match found {
            Some(found) => expected.ensure_is(&found)?,
            None => {
                return Err(refused(format!("the store '{}' was never used together with the others", expected.part)));
            }
        }
    }
    Ok(())
}

/// Reads the record of each part.
async fn all(shared: &Shared) -> Result<Vec<Option<Record>>> {
    let mut records = Vec::new();
    for store in &shared.stores {
        records.push(Record::of(&**store, ID).await?);
    }
    Ok(records)
}

/// Checks that no part belongs to another set.
fn ensure_unused(shared: &Shared, records: &[Option<Record>]) -> Result<()> {
    match records.iter().enumerate().find_map(|(part, record)| Some((part, record.as_ref()?))) {
        None => Ok(()),
        Some((part, record)) => Err(of_others(shared.routing.name(part), record)),
    }
}

/// Claims the stores for this rule, before anything else is written; returns the name of the set.
async fn claim(shared: &Shared) -> Result<String> {
    let set = shared.sources.ids.object_id().to_hex();
    let named = shared.routing.names().iter().zip(&shared.stores).min_by_key(|(name, _)| name.as_str());
    let Some((name, store)) = named else { return Ok(set) };
    let claim = Record { set, part: name.clone(), routes: Some(routes(shared)) }.put(&**store, CLAIM).await?;
    if claim.part != *name {
        return Err(of_others(name, &claim));
    }
    let claimed = claim.routes.as_deref().unwrap_or_default();
    if claimed != routes(shared) {
        let text = format!(
            "another process began to use these stores together by other routes: {}, not {}; use those, or, if no process does, delete \
             the document with the _id '{CLAIM}' from {RECORD_DATABASE}.{RECORD_COLLECTION} in the store '{name}', and open them again",
            claimed.join(" "),
            routes(shared).join(" ")
        );
        return Err(refused(text));
    }
    Ok(claim.set)
}

/// Returns the rule in its recorded form.
fn routes(shared: &Shared) -> Vec<String> {
    shared.routing.routes().iter().map(ToString::to_string).collect()
}

fn ensure_same_rule(shared: &Shared, recorded: &Record) -> Result<()> {
    let name = shared.routing.name(shared.routing.rest());
    let Some(recorded_routes) = recorded.routes.as_ref().filter(|_| recorded.part == name) else {
        return Err(of_others(name, recorded));
    };
    ensure_same_routes(shared, recorded_routes)
}

fn ensure_same_routes(shared: &Shared, recorded: &[String]) -> Result<()> {
    let routes = routes(shared);
    if *recorded == routes {
        return Ok(());
    }
    let text = format!(
        "the documents in these stores are kept by other routes: {}, not {}; a document would not be found where it is",
        recorded.join(" "),
        routes.join(" ")
    );
    Err(refused(text))
}

/// Checks that every collection is in the part that the rule has it in. The timestamp oracle in a part other than that of the
/// rest shows that the store was used on its own.
async fn ensure_in_place(shared: &Shared) -> Result<()> {
    for (part, store) in shared.stores.iter().enumerate() {
        for database in store.list_databases().await? {
            for info in store.list_collections(&database).await? {
                let is_own =
                    database == RECORD_DATABASE && (info.name == RECORD_COLLECTION || info.name.starts_with(TRIED));
                if is_own || shared.is_here(part, &database, &info.name) {
                    continue;
                }
                let (there, name) = (shared.routing.name(part), &info.name);
                let other = match Namespace::new(database.as_str(), name.as_str()) {
                    Ok(namespace) => shared.routing.part(&namespace),
                    Err(_) => shared.routing.part_of_database(&database),
                };
                return Err(refused(format!(
                    "{database}.{name} is in the store '{there}', and the routes look for it in '{}': move it (dump and \
                     restore), or give it a route",
                    shared.routing.name(other)
                )));
            }
        }
    }
    Ok(())
}

fn of_others(name: &str, found: &Record) -> Error {
    refused(format!(
        "the store '{name}' is '{}' of another set of stores: it was used before with other ones, or under another name",
        found.part
    ))
}

fn refused(text: String) -> Error {
    Error::command(Code::IllegalOperation, text)
}

fn namespace() -> Result<Namespace> {
    Namespace::new(RECORD_DATABASE, RECORD_COLLECTION)
}

impl Record {
    /// Creates the record of a part other than that of the rest.
    fn of_part(shared: &Shared, part: usize, first: &Record) -> Self {
        Record { set: first.set.clone(), part: shared.routing.name(part).to_owned(), routes: None }
    }

    fn ensure_is(&self, found: &Record) -> Result<()> {
        if self == found { Ok(()) } else { Err(of_others(&self.part, found)) }
    }

    async fn of(store: &dyn DocumentStore, id: &str) -> Result<Option<Self>> {
        let found = store.find_one(&namespace()?, rawdoc! { "_id": id }).await?;
        found.map(|document| Record::read(&document)).transpose()
    }

    /// Writes the record unless there is one; returns the stored one.
    async fn put(&self, store: &dyn DocumentStore, id: &str) -> Result<Self> {
        match store.insert_one(&namespace()?, self.document(id)).await {
            Err(error) if error.code() == Code::DuplicateKey => {}
            written => written?,
        }
        Record::of(store, id).await?.ok_or_else(|| damaged("it is not there after it was written"))
    }

    fn document(&self, id: &str) -> RawDocumentBuf {
        let mut document = rawdoc! { "_id": id, "set": self.set.as_str(), "part": self.part.as_str() };
        if let Some(routes) = &self.routes {
            let routes: RawArrayBuf = routes.iter().map(|route| RawBson::from(route.as_str())).collect();
            document.append(bson::raw::cstr!("routes"), routes);
        }
        document
    }

    fn read(document: &RawDocument) -> Result<Self> {
        let text = |field: &str| document.get_str(field).map(str::to_owned).map_err(damaged);
        let routes = match document.get("routes").map_err(damaged)? {
            None => None,
            Some(routes) => {
                let mut texts = Vec::new();
                for route in routes.as_array().ok_or_else(|| damaged("its routes are no list"))? {
                    let route = route.map_err(damaged)?;
                    texts.push(route.as_str().ok_or_else(|| damaged("a route is no text"))?.to_owned());
                }
                Some(texts)
            }
        };
        Ok(Record { set: text("set")?, part: text("part")?, routes })
    }
}

fn damaged(why: impl std::fmt::Display) -> Error {
    let text = format!("{RECORD_DATABASE}.{RECORD_COLLECTION} is not what Handfast writes: {why}");
    Error::command(Code::InternalError, text)
}

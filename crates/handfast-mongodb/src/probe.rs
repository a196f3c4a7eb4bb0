//! Detects the capabilities of a server by trying them.
//!
//! A server that does not support an option may refuse it, ignore it, or close the connection. So each probe checks the effect
//! of its request: a sparse index has to be listed as sparse, and a hint to a missing index has to be refused. After a closed
//! connection, a ping tells whether the server is still available; then the request was the cause.
//!
//! The probes have a client of their own, and another one after each closed connection: a client whose connection was closed takes the server for lost, says
//! so, and waits for half a second before it connects again.
//!
//! The probes use a collection with a unique name, which is dropped at the end.
//!
//! Atomicity of updates cannot be tried, so it follows from the product: FerretDB 1 reads a document, changes it and writes it
//! back in separate steps (its `msg_update.go`), so it loses one of two concurrent updates.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, Decimal128, RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::collation::with_variable;
use handfast_store::{
    DeleteStatement, ErrorClass, Find, Hint, IndexSelector, IndexSpec, ModifyCollection, ModifyIndex, Namespace,
    RenameCollection, Result, UpdateSpec, UpdateStatement,
};
use mongodb::Client;
use mongodb::options::ClientOptions;

use crate::capability::{Capabilities, Capability};
use crate::command::{self, Command};
use crate::concern::{Concerns, Deployment};
use crate::error::{Effect, of_driver};
use crate::remote::{Remote, ReplyWait};
use crate::reply;

/// The prefix of the collections of probes.
const COLLECTION: &str = "handfast_probe_";

/// The facts about a server before the probes.
#[derive(Clone, Copy)]
pub(crate) struct Known<'k> {
    pub(crate) product: &'k str,
    pub(crate) deployment: Deployment,
    /// Whether it is FerretDB with major version 1.
    pub(crate) is_ferretdb_1: bool,
}

/// The clients of probes.
pub(crate) struct ProbeClients {
    pub(crate) options: ClientOptions,
    pub(crate) concerns: Concerns,
    pub(crate) statements_max: usize,
    pub(crate) reply_timeout: Duration,
}

impl ProbeClients {
    /// Makes a client, which connects when it is used.
    fn remote(&self) -> Result<Arc<Remote>> {
        let client = Client::with_options(self.options.clone()).map_err(|error| of_driver(error, Effect::Nothing))?;
        Ok(Arc::new(Remote::new(client, self.concerns.clone(), self.statements_max, self.reply_timeout)))
    }
}

/// Tries all capabilities in a database, in a collection whose name ends with `unique`.
///
/// # Errors
/// Returns a network error if the server cannot be reached, and the server's error if the user may not write to the database.
pub(crate) async fn run(
    clients: &ProbeClients,
    known: Known<'_>,
    database: &str,
    unique: &str,
) -> Result<Capabilities> {
    let collection = Namespace::new(database, format!("{COLLECTION}{unique}"))?;
    let mut probe = Probe { clients, remote: clients.remote()?, collection };
    let found = probe.all(&known).await;
    let dropped = probe.drop().await;
    let mut missing = found?;
    dropped?;
    if known.is_ferretdb_1 {
        missing.push(Capability::AtomicUpdates);
    }
    if known.is_ferretdb_1 || known.deployment == Deployment::Sharded {
        missing.push(Capability::RenameAcrossDatabases);
    }
    Ok(Capabilities::new(known.product.to_owned(), missing))
}

struct Probe<'p> {
    clients: &'p ProbeClients,
    remote: Arc<Remote>,
    collection: Namespace,
}

impl Probe<'_> {
    /// Returns the missing capabilities.
    async fn all(&mut self, known: &Known<'_>) -> Result<Vec<Capability>> {
        // A user without write access gets this error instead of a list of missing capabilities.
        self.put(rawdoc! { "_id": "a", "n": 1, "list": [{ "n": 1 }, { "n": 5 }] }).await?;
        let mut missing = Vec::new();
        for capability in Capability::ALL {
            if !self.has(capability).await? {
                tracing::debug!(server = known.product, %capability, "the server lacks something");
                missing.push(capability);
            }
        }
        Ok(missing)
    }

    async fn has(&mut self, capability: Capability) -> Result<bool> {
        match self.try_capability(capability).await {
            Err(error) if error.class() == ErrorClass::Command => Ok(false),
            Err(error) if error.class() == ErrorClass::TransientNetwork => {
                // The server closed the connection. If the request is the cause, it does so again and still answers a ping.
                self.remote = self.clients.remote()?;
                let again = self.try_capability(capability).await;
                match again {
                    Err(again) if again.class() == ErrorClass::TransientNetwork => {
                        self.remote = self.clients.remote()?;
                        self.remote.read("admin", Command::new(cstr!("ping"), 1), ReplyWait::Limited).await?;
                        Ok(false)
                    }
                    Err(again) if again.class() == ErrorClass::Command => Ok(false),
                    Err(_) => Err(error),
                    Ok(has) => Ok(has),
                }
            }
            other => other,
        }
    }

    async fn try_capability(&self, capability: Capability) -> Result<bool> {
        use Capability as C;
        let a = || rawdoc! { "_id": "a" };
        let set = |change| UpdateStatement::one(a(), UpdateSpec::Document(change));
        let add = || vec![rawdoc! { "$set": { "m": { "$add": ["$n", 1] } } }];
        match capability {
            // These cannot be tried.
            C::AtomicUpdates | C::RenameAcrossDatabases => Ok(true),
            C::PipelineUpdates => {
                let statement = UpdateStatement::one(a(), UpdateSpec::Pipeline(add()));
                self.update_leads_to(&statement, rawdoc! { "_id": "a", "m": 2 }).await
            }
            C::Constants => {
                let stages = vec![rawdoc! { "$set": { "k": "$$constant" } }];
                let constants = rawdoc! { "constant": 7 };
                let statement =
                    UpdateStatement { constants, ..UpdateStatement::one(a(), UpdateSpec::Pipeline(stages)) };
                self.update_leads_to(&statement, rawdoc! { "_id": "a", "k": 7 }).await
            }
            C::ArrayFilters => {
                let array_filters = vec![rawdoc! { "x.n": { "$gt": 3 } }];
                let statement = UpdateStatement { array_filters, ..set(rawdoc! { "$set": { "list.$[x].n": 6 } }) };
                self.update_leads_to(&statement, rawdoc! { "_id": "a", "list": [{ "n": 1 }, { "n": 6 }] }).await
            }
            C::SortedUpdates => {
                self.put(rawdoc! { "_id": "s1", "s": 1 }).await?;
                self.put(rawdoc! { "_id": "s2", "s": 2 }).await?;
                let change = UpdateSpec::Document(rawdoc! { "$set": { "picked": true } });
                let by_s = UpdateStatement::one(rawdoc! { "s": { "$gt": 0 } }, change);
                let statement = UpdateStatement { sort: rawdoc! { "s": -1 }, ..by_s };
                self.update_leads_to(&statement, rawdoc! { "_id": "s2", "picked": true }).await
            }
            C::Hints => self.heeds_hints().await,
            C::Variables => {
                let filter = rawdoc! { "$expr": { "$eq": ["$_id", "$$wanted"] } };
                let find = Find { variables: rawdoc! { "wanted": "a" }, ..self.find(filter) };
                Ok(self.found(&find).await? == 1)
            }
            C::SparseIndexes => {
                self.index_is_kept(IndexSpec { sparse: true, ..IndexSpec::new(rawdoc! { "p1": 1 }) }).await
            }
            C::PartialIndexes => {
                let partial_filter = Some(rawdoc! { "live": true });
                self.index_is_kept(IndexSpec { partial_filter, ..IndexSpec::new(rawdoc! { "p2": 1 }) }).await
            }
            C::ExpiringIndexes => {
                let expire_after_seconds = Some(1_000_000);
                self.index_is_kept(IndexSpec { expire_after_seconds, ..IndexSpec::new(rawdoc! { "p3": 1 }) }).await
            }
            C::HiddenIndexes => {
                self.index_is_kept(IndexSpec { hidden: true, ..IndexSpec::new(rawdoc! { "p4": 1 }) }).await
            }
            C::IndexChanges => self.changes_an_index().await,
            C::RenameOntoAnother => self.renames_onto_another().await,
            C::Decimals => {
                let one = Decimal128::from_bytes([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x30]);
                self.keeps("decimal", one.into()).await
            }
            C::InfiniteNumbers => self.keeps("infinite", f64::INFINITY.into()).await,
            C::NanIds => {
                Ok(self.replaces(f64::NAN.into()).await? && self.replaces(rawdoc! { "n": f64::NAN }.into()).await?)
            }
            C::ExtremeKeys => {
                Ok(self.keeps("least", RawBson::MinKey).await? && self.keeps("greatest", RawBson::MaxKey).await?)
            }
            C::ObsoleteTypes => self.keeps("code", RawBson::JavaScriptCode("x".to_owned())).await,
            C::NestedArrays => {
                let inner = RawArrayBuf::from_iter([1, 2]);
                self.keeps("nested", RawArrayBuf::from_iter([inner]).into()).await
            }
            C::DottedNames => self.keeps("dotted", rawdoc! { "x.y": 1 }.into()).await,
            C::Collations => {
                let collation = rawdoc! { "locale": "en", "strength": 2 };
                let variables = with_variable(rawdoc! {}, Some(&collation));
                let find = Find { variables, ..self.find(rawdoc! { "_id": "A" }) };
                Ok(self.found(&find).await? == 1)
            }
        }
    }

    fn find(&self, filter: RawDocumentBuf) -> Find {
        Find::new(self.collection.clone(), filter)
    }

    async fn write(&self, command: Command) -> Result<RawDocumentBuf> {
        self.remote.run(self.collection.database(), command, Effect::Nothing, ReplyWait::Limited).await
    }

    /// Inserts a document, unless its `_id` exists.
    async fn put(&self, document: RawDocumentBuf) -> Result<()> {
        let reply = self.write(command::insert(&self.collection, &[document], true)).await?;
        let outcome = reply::insert(&reply, 0, 1, true)?;
        match outcome.errors.into_iter().next() {
            Some(refused) if refused.error.code() != handfast_mql::Code::DuplicateKey => Err(refused.error),
            _ => Ok(()),
        }
    }

    async fn found(&self, find: &Find) -> Result<usize> {
        let database = self.collection.database();
        let cursor = self.remote.open(database, command::find(find), Effect::Nothing, ReplyWait::Limited).await?;
        Ok(cursor.drain().await?.len())
    }

    /// Returns whether a document is stored with this value.
    async fn keeps(&self, id: &str, value: RawBson) -> Result<bool> {
        let mut document = rawdoc! { "_id": id };
        document.append(cstr!("v"), value);
        self.put(document.clone()).await?;
        let find = command::find(&self.find(rawdoc! { "_id": id }));
        let database = self.collection.database();
        let cursor = self.remote.open(database, find, Effect::Nothing, ReplyWait::Limited).await?;
        Ok(cursor.drain().await? == [document])
    }

    /// Returns whether a document with this `_id` can be replaced.
    async fn replaces(&self, id: RawBson) -> Result<bool> {
        self.put(rawdoc! { "_id": id.clone() }).await?;
        let replacement = UpdateSpec::Document(rawdoc! { "_id": id.clone(), "v": 1 });
        let statement = UpdateStatement::one(rawdoc! { "_id": { "$eq": id.clone() } }, replacement);
        self.update_leads_to(&statement, rawdoc! { "_id": { "$eq": id }, "v": 1 }).await
    }

    /// Returns whether a document matches the example after the update.
    async fn update_leads_to(&self, statement: &UpdateStatement, example: RawDocumentBuf) -> Result<bool> {
        let statements = [command::update_statement(statement, &rawdoc! {})];
        let reply = self.write(command::update(&self.collection, &statements, true, &rawdoc! {})).await?;
        let outcome = reply::update(&reply, 0)?;
        if let Some(refused) = outcome.errors.into_iter().next() {
            return Err(refused.error);
        }
        Ok(self.found(&self.find(example)).await? == 1)
    }

    /// Returns whether finds, updates and deletes refuse a hint to a missing index.
    async fn heeds_hints(&self) -> Result<bool> {
        let hint = || Some(Hint::Name("handfast_no_such_index".to_owned()));
        let a = || rawdoc! { "_id": "a" };
        if self.found(&Find { hint: hint(), ..self.find(a()) }).await.is_ok() {
            return Ok(false);
        }
        let change = UpdateSpec::Document(rawdoc! { "$set": { "hinted": true } });
        let statement = command::update_statement(
            &UpdateStatement { hint: hint(), ..UpdateStatement::one(a(), change) },
            &rawdoc! {},
        );
        let reply = self.write(command::update(&self.collection, &[statement], true, &rawdoc! {})).await;
        if reply.and_then(|reply| reply::update(&reply, 0)).is_ok_and(|outcome| outcome.errors.is_empty()) {
            return Ok(false);
        }
        let statement = DeleteStatement { filter: rawdoc! { "_id": "none" }, multi: false, hint: hint() };
        let statement = command::delete_statement(&statement, &rawdoc! {});
        let reply = self.write(command::delete(&self.collection, &[statement], true, &rawdoc! {})).await;
        Ok(!reply.and_then(|reply| reply::delete(&reply, 0)).is_ok_and(|outcome| outcome.errors.is_empty()))
    }

    /// Returns whether an index is listed as it was created.
    async fn index_is_kept(&self, index: IndexSpec) -> Result<bool> {
        self.write(command::create_index(&self.collection, &index)).await?;
        Ok(self.indexes().await?.contains(&index))
    }

    async fn indexes(&self) -> Result<Vec<IndexSpec>> {
        let command = command::list_indexes(&self.collection);
        let cursor = self.remote.open(self.collection.database(), command, Effect::Nothing, ReplyWait::Limited).await?;
        cursor.drain().await?.iter().map(|shown| reply::index(shown)).collect()
    }

    async fn changes_an_index(&self) -> Result<bool> {
        let index = IndexSpec { expire_after_seconds: Some(1_000_000), ..IndexSpec::new(rawdoc! { "p5": 1 }) };
        let changed = IndexSpec { expire_after_seconds: Some(2_000_000), ..index.clone() };
        if self.indexes().await?.contains(&changed) {
            // The answer to an earlier attempt was lost.
            return Ok(true);
        }
        self.write(command::create_index(&self.collection, &index)).await?;
        let selector = IndexSelector::Names(vec![index.name.clone()]);
        let change = ModifyIndex { selector, expire_after_seconds: Some(2_000_000), hidden: None };
        let request = ModifyCollection { index: Some(change), ..ModifyCollection::new(self.collection.clone()) };
        self.write(command::modify_collection(&request)).await?;
        Ok(self.indexes().await?.contains(&changed))
    }

    fn other(&self) -> Result<Namespace> {
        Namespace::new(self.collection.database(), format!("{}_2", self.collection.collection()))
    }

    async fn renames_onto_another(&self) -> Result<bool> {
        let (from, to) = (self.other()?, self.collection.clone());
        let document = rawdoc! { "_id": "renamed", "v": Binary { subtype: BinarySubtype::Generic, bytes: vec![1] } };
        let reply = self.write(command::insert(&from, &[document], true)).await?;
        reply::insert(&reply, 0, 1, true)?;
        let rename = command::rename(&RenameCollection { from, to, drop_target: true });
        self.remote.run("admin", rename, Effect::Nothing, ReplyWait::Limited).await?;
        let renamed = self.found(&self.find(rawdoc! { "_id": "renamed" })).await? == 1;
        // The rename has dropped the document of the other probes.
        self.put(rawdoc! { "_id": "a", "n": 1, "list": [{ "n": 1 }, { "n": 5 }] }).await?;
        Ok(renamed)
    }

    /// Drops the collections of the probes.
    async fn drop(&self) -> Result<()> {
        for namespace in [self.collection.clone(), self.other()?] {
            match self.write(command::drop(&namespace)).await {
                Err(error) if error.code() == handfast_mql::Code::NamespaceNotFound => {}
                result => drop(result?),
            }
        }
        Ok(())
    }
}

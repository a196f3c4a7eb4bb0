//! A sync flag: fields of one document are copied into others, and no copy stays out of date for good.
//!
//! Every comment of a user holds the user's name. The update that changes the name also sets a flag in the user's
//! document, in one step; then the comments are changed, and then the flag is removed. A process that finds an old
//! flag does the remaining steps again.
//!
//! ```text
//!                user 1                                         comments of user 1       (Link: user, name -> userName)
//!                {name: John, syncVersion: 6}                   John 6        John 6
//! begin    1     {name: Mary, syncVersion: 7, syncing: now}
//! carry    2                                                    Mary 7                   those whose userVersion is not
//!          3                                                                  Mary 7     at least 7, in one request
//! finish   4     {name: Mary, syncVersion: 7}                   if syncing is still that date, and the version still 7
//! ```
//!
//! # Versions
//!
//! Each change increments the main document's version, and each copy has the version that it was made from. A copy is
//! only overwritten by a newer version. So the values of the last version win, even if two processes change the
//! document at once, a sweeper runs beside a slow process, or requests arrive in another order. A flag is removed only
//! by a process that has carried the version that set it.
//!
//! # Copies made while a change is in flight
//!
//! Suppose a process reads user 1 (John, version 6) to insert a comment for John. In between the user becomes Mary,
//! the comments are changed, and the flag is removed; then the comment is inserted, with a name that no process will
//! look for. The process could read the user again after the insert, but may die before. A flag in the user's document
//! would take two writes to the busiest document for each comment, and a late insert would arrive after that flag was
//! removed.
//!
//! So a new copy has a flag of its own. [`SyncFlag::insert_copy`] writes the values, their version and the date
//! (`userSyncing`), reads the user *again*, and removes the flag in the update that sets the values just read. If a
//! newer version was there first, it repeats that. The argument:
//!
//! - A copy without a flag was equal to its main document at some moment after it was inserted.
//! - Every later version is set together with the main document's flag, and carried by a request that begins later and
//!   therefore finds the copy.
//! - That flag is removed only after such a request has ended.
//!
//! Hence a copy that differs has a flag, or its main document has one: the sweeper finds both by sparse indexes. A
//! comment that is inserted hours late has its flag, too.
//!
//! # Failures and their effects
//!
//! | at | what happens |
//! | --- | --- |
//! | a process dies after step 1, or within 2 | the flag is set: [`SyncFlag::sweep`], or the next [`SyncFlag::read`], carries the version again |
//! | an answer is lost | each step is safe to repeat: its filter has a token, a version or a date, and does not match twice |
//! | two processes change one main document | the versions differ: step 4 of the first matches nothing, and the newer one keeps its flag |
//! | a copy of step 1 arrives late | the main document remembers the tokens of its last changes |
//! | a copy of step 2 or 4 arrives late | the copies are not older, or the date is another one |
//! | a new copy is made from an old version | it has a flag of its own, see above |
//! | a process dies within a delete | the main document stays, marked as deleted, until every copy was changed |
//! | a copy is inserted for a deleted main document | its flag is set, and [`OnDelete`] decides what the copy becomes |
//!
//! The pattern does not cover writes that bypass it: a raw update of a copied field, a foreign key that is changed
//! without [`SyncFlag::stamp`], a backup that is restored on one side only. [`SyncFlag::drift`] finds their effects,
//! and [`SyncFlag::repair`] repairs them. If an `_id` is used again after a delete, versions begin at 1 again: wait
//! before that for longer than any request can be under way, and repair what [`OnDelete`] has left.
//!
//! The result does not depend on clocks: dates only keep the sweeper from doing the work of a process that is about to
//! do it.
//!
//! Source: seed 0 (solution 1). Versions, the flag of a new copy and deletes are our additions.

mod audit;
mod carry;
mod comparison;
mod copies;
mod declared;
mod link;
mod options;
mod record;
mod requests;
mod settings;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod unknown_name;
mod within;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, IndexSpec, Namespace, Sources};

pub use audit::Audit;
pub use comparison::{Stale, StaleCopy};
pub use copies::{Copied, Inserted, Stamped};
pub use declared::{Declared, DeclaredLink};
pub use link::{Link, OnDelete};
pub use options::{SyncFields, SyncFlagOptions};
pub use record::{FINAL_VERSION, Main};
pub use state::{MainEvent, MainState};
pub use sweep::Staleness;
pub use unknown_name::UnknownName;
pub use within::SyncFlagWithin;

use crate::exactly_once::{Change, Token};
use crate::metrics::{self, Event};
use crate::steps::{Request, Steps, raw};
use crate::value::equal;
use crate::{Error, FieldNames, Result};

/// Attempts at a step that races with others. At each attempt another one has succeeded.
const RACES_MAX: u32 = 16;

/// The result of a change, or of a delete.
#[derive(Clone, Debug)]
#[must_use]
pub enum SyncOutcome {
    /// The main document was changed (or deleted), and every copy has this version or a newer one.
    Synced {
        /// The version of the main document.
        version: i64,
    },
    /// The main document was changed (or is deleted for readers), and its copies are not up to date yet: the sweeper
    /// or [`SyncFlag::sync`] will carry the change.
    Later {
        /// The version of the main document.
        version: i64,
        /// The error that stopped the change of the copies.
        error: Error,
    },
    /// The document does not exist.
    Missing,
    /// The guard does not hold. Nothing was changed, and the token can be used again.
    Refused,
}

/// The result of the first step within a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// The main document was changed and has its flag.
    Flagged {
        /// The version of the main document.
        version: i64,
    },
    /// The document does not exist.
    Missing,
    /// The guard does not hold.
    Refused,
}

/// The document that the first step found.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Beginning {
    Made(Main),
    Missing,
    Refused,
}

impl Beginning {
    fn begun(&self) -> Begun {
        match self {
            Beginning::Made(main) => Begun::Flagged { version: main.version },
            Beginning::Missing => Begun::Missing,
            Beginning::Refused => Begun::Refused,
        }
    }
}

/// Main documents whose fields are copied into others. See the [module's documentation](self).
///
/// ```
/// use bson::{doc, rawdoc};
/// use handfast_patterns::sync_flag::{Link, SyncOutcome, SyncFlag, SyncFlagOptions};
/// use handfast_patterns::Change;
/// use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let (users, comments) = (Namespace::new("site", "users")?, Namespace::new("site", "comments")?);
/// store.insert_one(&users, rawdoc! { "_id": 1, "name": "John" }).await?;
///
/// let options = SyncFlagOptions::new([Link::new(comments.clone(), "user").field("name", "userName")]);
/// let names = SyncFlag::open_with(store.clone(), users, sources, options).await?;
/// names.insert_copy(&comments, doc! { "_id": 9, "user": 1, "text": "first" }).await?;
/// let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
/// assert!(matches!(names.change(names.token(), 1, &renamed).await?, SyncOutcome::Synced { version: 1 }));
///
/// let comment = store.find_one(&comments, rawdoc! { "_id": 9 }).await?.expect("inserted above");
/// assert_eq!(comment.get_str("userName").ok(), Some("Mary"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SyncFlag {
    mains: Steps,
    sources: Sources,
    options: Arc<SyncFlagOptions>,
}

impl SyncFlag {
    /// Opens the sync flag of a collection of main documents. It records the settings if none are recorded
    /// ([`SyncFlag::declared`]), and creates the sparse indexes on flags and the indexes that find the copies.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other links, `tokens_max` or field names are recorded
    /// ([`SyncFlag::change_settings`]). [`Error::Invalid`] for options without a link, with two links that write to
    /// one field, or with a `tokens_max` of 0.
    pub async fn open(store: Arc<dyn DocumentStore>, mains: Namespace, options: SyncFlagOptions) -> Result<Self> {
        SyncFlag::open_with(store, mains, Sources::system()?, options).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`SyncFlag::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        mains: Namespace,
        sources: Sources,
        options: SyncFlagOptions,
    ) -> Result<Self> {
        let flag = SyncFlag::attach(store, mains, sources, options)?;
        flag.record_settings().await?;
        flag.create_indexes().await?;
        Ok(flag)
    }

    /// Opens the sync flag without writing to the store: it creates no indexes and records no settings. A caller that
    /// makes changes through it must pass all links of the application as they are recorded ([`SyncFlag::declared`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] for the options that [`SyncFlag::open`] refuses.
    pub fn attach(
        store: Arc<dyn DocumentStore>,
        mains: Namespace,
        sources: Sources,
        options: SyncFlagOptions,
    ) -> Result<Self> {
        SyncFlag::check(&options)?;
        Ok(SyncFlag { mains: Steps::new(store, mains), sources, options: Arc::new(options) })
    }

    fn check(options: &SyncFlagOptions) -> Result<()> {
        options.fields.check()?;
        link::check_all(&options.links, &options.fields)?;
        if options.tokens_max == 0 {
            return Err(Error::invalid(
                "tokens_max must be at least 1: an update whose token is not kept can be applied twice",
            ));
        }
        Ok(())
    }

    async fn create_indexes(&self) -> Result<()> {
        let sparse =
            |field: &String| raw(&doc! { field: 1 }).map(|key| IndexSpec { sparse: true, ..IndexSpec::new(key) });
        self.mains.create_indexes([sparse(&self.fields().syncing)?]).await?;
        for link in &self.options.links {
            let found = IndexSpec::new(raw(&doc! { &link.foreign_key: 1, &link.version: 1 })?);
            self.copies(link).create_indexes([found, sparse(&link.syncing)?]).await?;
        }
        Ok(())
    }

    /// Returns the same pattern on another store of the same documents, such as one with another durability.
    #[must_use]
    pub fn on_store(&self, store: Arc<dyn DocumentStore>) -> Self {
        SyncFlag { mains: self.mains.on(store), ..self.clone() }
    }

    /// Returns the same pattern with another age from which the sweep treats a flag as left behind.
    #[must_use]
    pub fn abandoned_after(&self, age: Duration) -> Self {
        let options = SyncFlagOptions { abandoned_after: age, ..(*self.options).clone() };
        SyncFlag { options: Arc::new(options), ..self.clone() }
    }

    /// Returns the steps that can be made within an open transaction. They take effect if and only if it commits.
    pub fn within(&self, transaction: Arc<dyn DocumentStore>) -> SyncFlagWithin {
        SyncFlagWithin::new(self.on_store(transaction))
    }

    /// Returns a fresh token.
    pub fn token(&self) -> Token {
        Token::fresh(&*self.sources.ids)
    }

    /// Changes a main document, and then its copies. If the token was used before, the change is not made again, but
    /// the copies are still brought up to date.
    ///
    /// # Errors
    /// [`Error::Store`] if the change of the main document fails: if [`Error::applied`] is `Maybe`, call again with
    /// the same token. A failure at the copies is [`SyncOutcome::Later`]. [`Error::Invalid`] for a change that would
    /// insert the document: insert it directly, as it has no copies yet.
    ///
    /// # Cancellation
    /// The change may have been applied: call again with the same token.
    pub async fn change(&self, token: Token, id: impl Into<Bson>, change: &Change) -> Result<SyncOutcome> {
        match self.begin(token, &id.into(), change).await? {
            Beginning::Made(main) => {
                self.count(Event::MainChanged, 1);
                Ok(self.carry_or_later(main).await)
            }
            Beginning::Missing => Ok(SyncOutcome::Missing),
            Beginning::Refused => Ok(SyncOutcome::Refused),
        }
    }

    /// Returns whether the change with this token was made, as far as the main document remembers.
    pub async fn is_changed(&self, token: Token, id: impl Into<Bson>) -> Result<bool> {
        let changed = doc! { "_id": id.into(), &self.fields().tokens: token };
        Ok(self.mains.find_one(&changed).await?.is_some())
    }

    /// Deletes a main document: first it is marked as deleted, and does not exist for readers; then its copies are
    /// treated according to [`OnDelete`]; then it is removed.
    ///
    /// # Errors
    /// [`Error::Store`] if the mark cannot be written: delete it again. A failure at the copies is [`SyncOutcome::Later`].
    ///
    /// # Cancellation
    /// The document may have been marked as deleted: delete it again.
    pub async fn delete(&self, id: impl Into<Bson>) -> Result<SyncOutcome> {
        match self.begin_delete(&id.into()).await? {
            Some(main) => {
                self.count(Event::MainChanged, 1);
                Ok(self.carry_or_later(main).await)
            }
            None => Ok(SyncOutcome::Missing),
        }
    }

    /// Returns a main document, after a change that is under way in it was carried to its copies.
    ///
    /// # Errors
    /// [`Error::Store`] if the read or the changes of the copies fail. To read the document without them, read it from
    /// the store.
    pub async fn read(&self, id: impl Into<Bson>) -> Result<Option<Document>> {
        let Some(main) = self.main(&id.into()).await? else { return Ok(None) };
        self.carry(&main).await?;
        Ok(main.is_alive().then_some(main.document))
    }

    /// Returns a main document with its version and state, without changing anything.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document with an invalid version or flag.
    pub async fn show(&self, id: impl Into<Bson>) -> Result<Option<Main>> {
        self.main(&id.into()).await
    }

    /// Returns main documents with a flag, the oldest flag first.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document with an invalid version or flag.
    pub async fn list(&self, limit: u32) -> Result<Vec<Main>> {
        self.list_each(limit).await?.into_iter().collect()
    }

    /// Returns main documents as [`SyncFlag::list`] does. A document whose version or flag is invalid has an error in
    /// its place, which names it.
    pub async fn list_each(&self, limit: u32) -> Result<Vec<Result<Main>>> {
        let syncing = &self.fields().syncing;
        let found = self.mains.find(&doc! { syncing: { "$exists": true } }, &doc! { syncing: 1 }, limit).await?;
        Ok(found.into_iter().map(|document| Main::read(&self.mains, document, self.fields())).collect())
    }

    /// Makes step 1 of a change.
    async fn begin(&self, token: Token, id: &Bson, change: &Change) -> Result<Beginning> {
        if change.inserts() {
            return Err(Error::invalid("a change does not make a main document: insert it, it has no copies yet"));
        }
        ensure_key(id)?;
        let Request { filter, update } = requests::begin(self.fields(), id, token, change, self.options.tokens_max)?;
        for _ in 0..RACES_MAX {
            if let Some(document) = self.mains.find_and_update(&filter, &update).await? {
                return self.read_changed(document).map(Beginning::Made);
            }
            // An attempt whose answer was lost, or an earlier request with this token, has made it.
            let ours = doc! { "_id": equal(id), &self.fields().tokens: token };
            if let Some(document) = self.mains.find_one(&ours).await? {
                return self.read_changed(document).map(Beginning::Made);
            }
            match self.main(id).await? {
                Some(main) if main.is_alive() && change.guard().is_none() => {}
                Some(main) if main.is_alive() => return Ok(Beginning::Refused),
                _ => return Ok(Beginning::Missing),
            }
        }
        Err(Error::Contended { what: format!("document {id} was made and deleted by others"), attempts: RACES_MAX })
    }

    /// Makes step 1 of a delete; `None` if there is nothing to delete.
    async fn begin_delete(&self, id: &Bson) -> Result<Option<Main>> {
        ensure_key(id)?;
        let Request { filter, update } = requests::begin_delete(self.fields(), id);
        match self.mains.find_and_update(&filter, &update).await? {
            Some(document) => self.read_changed(document).map(Some),
            // If the document exists, it was marked before.
            None => Ok(self.main(id).await?.filter(|main| main.state == MainState::Deleting)),
        }
    }

    /// Reads a main document after its change was made, so that an error does not say that nothing was changed.
    fn read_changed(&self, document: Document) -> Result<Main> {
        let read = Main::read(&self.mains, document, self.fields());
        read.map_err(|error| handfast_store::Error::from(error).in_doubt().into())
    }

    async fn main(&self, id: &Bson) -> Result<Option<Main>> {
        let found = self.mains.find_one(&doc! { "_id": equal(id) }).await?;
        found.map(|document| Main::read(&self.mains, document, self.fields())).transpose()
    }

    fn copies(&self, link: &Link) -> Steps {
        self.mains.at(link.target.clone())
    }

    /// Counts an event that happened to main documents, or to copies of them.
    fn count(&self, event: Event, times: u64) {
        metrics::count(event, self.mains.namespace(), times);
    }

    fn fields(&self) -> &SyncFields {
        &self.options.fields
    }
}

/// Checks that copies can name a main document by this `_id`.
fn ensure_key(id: &Bson) -> Result<()> {
    if record::is_key(id) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the main document cannot have the _id {id}: documents that name no main document have it, too"
    )))
}

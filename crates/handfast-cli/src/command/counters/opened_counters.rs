//! The counters of a data directory, or of servers.
//!
//! | form | cache and queue | documents |
//! | --- | --- | --- |
//! | `--data DIR` | in the process, the queue durable in the directory | in the directory, which one process uses at a time |
//! | `--redis URL --store URL` | in Redis | on servers, in transactions that Handfast makes or without ([`ServerDocuments`]); any number of processes |

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bson::rawdoc;
use handfast_counters::{
    AWAITED_IDLE, Buffer, Counters, CountersOptions, EmbeddedBuffer, EmbeddedBufferOptions, Error, MemoryBuffer,
    RedisBuffer, RedisBufferOptions, Storage,
};
use handfast_embedded::{EmbeddedStore, Error as Embedded};
use handfast_store::{DocumentStore, Sources, StoreExt as _};
use handfast_txn::Database;
use serde_json::{Value, json};

use super::flags::{CountersFlags, TimeZoneFlag};
use super::server_documents::ServerDocuments;
use crate::advice::Advised;
use crate::configuration::{Configuration, Mistake, RedisUrl};
use crate::exit::Usage;
use crate::store::{Directory, Location, ensure_there, namespace, open_directory};

/// The form of the counters that the settings name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// A data directory.
    Directory,
    /// Servers, with the queue in Redis.
    Redis(RedisUrl),
    /// Servers. The queue is not known: enough for what works on saved views.
    Saved,
}

/// The limits of what waits and what is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The events in a queue.
    pub(super) queue_events: u32,
    /// The idempotency keys, in a data directory.
    pub(super) idempotency_keys: u32,
}

/// The Redis with the queue.
struct Queue {
    url: RedisUrl,
    /// The number of events that it holds for each kind.
    events_max: u32,
    /// Whether it becomes the queue of the store if nobody uses another one. Otherwise it has to be that.
    is_taken: bool,
}

/// Counters, and the store that they are in.
pub(super) struct OpenedCounters {
    pub(super) counters: Counters,
    /// Whether the queue is known. Without it, counters have the saved views alone.
    pub(super) has_queue: bool,
    redis: Option<RedisUrl>,
    store: Store,
}

/// The store that counters are in.
enum Store {
    Directory(EmbeddedStore),
    Servers(ServerDocuments),
}

impl Form {
    fn of(configuration: &Configuration) -> Result<Self, Mistake> {
        // Refuses settings that contradict each other.
        Location::of(configuration)?;
        let settings = &configuration.settings;
        match (&settings.redis, &settings.store) {
            (None, None) => Ok(Form::Directory),
            (Some(url), Some(_)) => Ok(Form::Redis(url.clone())),
            (None, Some(_)) => Ok(Form::Saved),
            (Some(_), None) => {
                let why = "it needs `store`, the server with the documents that all instances share; a data directory has one \
                           process, which needs no Redis";
                Err(configuration.mistake("redis", why))
            }
        }
    }

    /// Refuses flags that have no effect on the form.
    fn with(self, flags: &CountersFlags) -> Result<Self, Usage> {
        match (&self, flags.transactions) {
            (Form::Directory, Some(_)) => {
                let why =
                    "a data directory always has transactions; the flag is for the documents on a server (--store)";
                Err(Usage(format!("--transactions: {why}")))
            }
            _ => Ok(self),
        }
    }
}

/// Fails for a store without its Redis, for a command that changes saved totals: instances have totals there, too, which have to follow.
pub(super) fn ensure_totals_known(configuration: &Configuration, command: &str) -> Result<(), Mistake> {
    match Form::of(configuration)? {
        Form::Directory | Form::Redis(_) => Ok(()),
        Form::Saved => {
            let why = format!(
                "`counters {command}` changes saved totals, and instances have totals in Redis, too: add --redis URL, the Redis of \
                 the instances"
            );
            Err(configuration.mistake("store", why))
        }
    }
}

/// Returns the options of a command that may run beside instances. One that changes saved totals needs moments without a batch that somebody saves, so it saves
/// those of instances that have died, and does not wait as long as a service does.
pub(super) fn options_beside_instances() -> CountersOptions {
    CountersOptions { idle: AWAITED_IDLE, ..CountersOptions::default() }
}

impl Queue {
    /// Connects, and makes sure that the queue is that of the store. If Redis is away, each pass does so.
    async fn open(&self, storage: Storage, sources: Sources, flush_interval: Duration) -> Result<RedisBuffer> {
        let default = RedisBufferOptions::default();
        let options = RedisBufferOptions {
            queue_events_max: self.events_max.into(),
            // Instances have the same flags, and look once in each interval.
            replace_after: default.replace_after.max(flush_interval * 3),
            ..default
        };
        let buffer = RedisBuffer::connect(self.url.secret(), storage, sources, options).await?;
        let checked = match self.is_taken {
            true => buffer.take_queue().await,
            false => buffer.check_queue().await,
        };
        match checked {
            Ok(()) => Ok(buffer),
            Err(error @ Error::Buffer { .. }) => {
                tracing::warn!(%error, "whether Redis has the queue of the store is found out before views are saved");
                Ok(buffer)
            }
            Err(error @ Error::WrongQueue { .. }) => bail!("--redis: {error}"),
            Err(error) => Err(error.into()),
        }
    }
}

impl OpenedCounters {
    /// Opens counters to serve them. What is missing is created.
    pub(super) async fn open(
        configuration: &Configuration,
        flags: &CountersFlags,
        options: CountersOptions,
        limits: Limits,
    ) -> Result<Self> {
        let database = &flags.database;
        let form = Form::of(configuration)?.with(flags)?;
        let sources = Sources::system()?;
        match form {
            Form::Saved => {
                let why =
                    "it needs `redis`, where the instances have their queue; a single instance needs neither: --data";
                Err(configuration.mistake("store", why).into())
            }
            Form::Redis(url) => {
                let opened = ServerDocuments::open(configuration, flags, &sources).await?;
                ensure_no_embedded_queue(opened.store(), database).await?;
                let queue = Queue { url, events_max: limits.queue_events, is_taken: true };
                Self::on_servers(opened, database, options, sources, Some(queue)).await
            }
            Form::Directory => {
                let store = open_directory(&configuration.settings, sources.clone()).await.map_err(advise)?;
                let [queue_events_max, keys_max] = [limits.queue_events, limits.idempotency_keys]
                    .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
                let buffer = EmbeddedBufferOptions { queue_events_max, keys_max, ..EmbeddedBufferOptions::default() };
                let counters = counters(&store, database, &sources, options, buffer).await;
                Self::in_directory(counters, store).await
            }
        }
    }

    /// Opens counters that exist. A command that does not ask which day it is needs no time zone.
    pub(super) async fn open_existing(
        configuration: &Configuration,
        flags: &CountersFlags,
        days: Option<&TimeZoneFlag>,
    ) -> Result<Self> {
        let totals = namespace(&flags.database, "totals", "--database")?;
        let mut options = options_beside_instances();
        if let Some(days) = days {
            options.time_zone = days.time_zone.0.clone();
        }
        let form = Form::of(configuration)?.with(flags)?;
        let sources = Sources::system()?;
        let queue = match form {
            Form::Directory => {
                let directory = Directory::of(&configuration.settings);
                let store = directory.open_existing(sources.clone()).await.map_err(advise)?;
                let counters = async {
                    ensure_there(&store, &totals, "--database").await?;
                    counters(&store, &flags.database, &sources, options, EmbeddedBufferOptions::default()).await
                };
                let counters = counters.await;
                return Self::in_directory(counters, store).await;
            }
            Form::Redis(url) => Some(Queue { url, events_max: u32::MAX, is_taken: false }),
            Form::Saved => None,
        };
        let opened = ServerDocuments::open(configuration, flags, &sources).await?;
        ensure_there(opened.store(), &totals, "--database").await?;
        Self::on_servers(opened, &flags.database, options, sources, queue).await
    }

    /// Closes the store if its counters could not be opened.
    async fn in_directory(counters: Result<Counters>, store: EmbeddedStore) -> Result<Self> {
        match counters {
            Ok(counters) => {
                Ok(OpenedCounters { counters, has_queue: true, redis: None, store: Store::Directory(store) })
            }
            Err(error) => {
                store.close().await?;
                Err(error)
            }
        }
    }

    /// Opens counters on servers.
    async fn on_servers(
        opened: ServerDocuments,
        database: &str,
        options: CountersOptions,
        sources: Sources,
        queue: Option<Queue>,
    ) -> Result<Self> {
        let storage = opened.storage(database, &sources).await?;
        let (buffer, redis): (Arc<dyn Buffer>, _) = match queue {
            None => (Arc::new(MemoryBuffer::new(sources.clone(), 0)), None),
            Some(queue) => {
                let buffer = queue.open(storage.clone(), sources.clone(), options.flush_interval).await?;
                (Arc::new(buffer), Some(queue.url))
            }
        };
        let counters = Counters::new(buffer, storage, sources, options);
        Ok(OpenedCounters { counters, has_queue: redis.is_some(), redis, store: Store::Servers(opened) })
    }

    /// Returns the form and the locations of queue and documents, for people.
    pub(super) fn location_text(&self, directory: &str) -> String {
        let Store::Servers(opened) = &self.store else { return format!("queue and data in {directory}") };
        let queue = self.redis.as_ref().map_or_else(String::new, |url| format!("queue in {url}, "));
        format!("{queue}{}", opened.location_text())
    }

    /// Returns the form and the locations of queue and documents, as fields for programs.
    pub(super) fn location_fields(&self, directory: &str) -> Vec<(&'static str, Value)> {
        let Store::Servers(opened) = &self.store else {
            return vec![("form", json!("embedded")), ("data", json!(directory)), self.transactions_field()];
        };
        let redis = self.redis.as_ref().map(|url| ("redis", json!(url.to_string())));
        let form = [("form", json!("redis")), self.transactions_field()];
        form.into_iter().chain(redis).chain(opened.location_fields()).collect()
    }

    fn transactions_field(&self) -> (&'static str, Value) {
        ("transactions", json!(self.counters.storage().form().transactions()))
    }

    /// Returns once nothing runs in the background any more.
    pub(super) async fn close(self) -> Result<()> {
        drop(self.counters);
        match self.store {
            Store::Directory(store) => Ok(store.close().await?),
            Store::Servers(opened) => opened.close().await,
        }
    }
}

/// Fails if the database came from a data directory whose queue was not saved. Redis gives its events larger numbers, so those of the
/// directory would be taken for saved ones.
async fn ensure_no_embedded_queue(database: &dyn DocumentStore, name: &str) -> Result<()> {
    let queue = namespace(name, EmbeddedBuffer::QUEUE, "--database")?;
    let is_empty = database.find_one(&queue, rawdoc! {}).await?.is_none();
    ensure!(
        is_empty,
        "--database: {name} has views in the queue of `counters serve --data` that are not saved: start that service and stop it, \
         which saves them, and copy the data again"
    );
    Ok(())
}

/// Adds advice to the error of a directory that another process uses, which is a service of counters in all likelihood.
fn advise(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Embedded::InUse { .. }) => {
            let advice = "stop the service that uses it, or ask it over HTTP; --data names another directory";
            Advised { what: error.to_string(), advice }.into()
        }
        _ => error,
    }
}

/// Opens the counters in an embedded store.
pub(in crate::command) async fn counters(
    store: &EmbeddedStore,
    database: &str,
    sources: &Sources,
    options: CountersOptions,
    buffer: EmbeddedBufferOptions,
) -> Result<Counters> {
    let storage = Storage::open(Database::local(store.clone(), sources.clone()), database).await?;
    let buffer = EmbeddedBuffer::open(Arc::new(store.clone()), database, &storage, sources.clone(), buffer).await?;
    Ok(Counters::new(Arc::new(buffer), storage, sources.clone(), options))
}

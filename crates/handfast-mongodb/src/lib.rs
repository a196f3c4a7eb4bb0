//! MongoDB, and whatever speaks its protocol, as a document store.
//!
//! ```no_run
//! # use handfast_mongodb::{ConnectOptions, connect};
//! # use handfast_store::{Namespace, Sources, StoreExt};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = connect("mongodb://localhost", Sources::system()?, ConnectOptions::default()).await?;
//! let accounts = Namespace::new("bank", "accounts")?;
//! let rich = connection.store.count_matching(&accounts, bson::rawdoc! { "balance": { "$gt": 1000 } }).await?;
//! println!("{rich} on {}", connection.server.product);
//! # Ok(())
//! # }
//! ```
//!
//! Each request of the contract becomes one command of the official driver, or a few if it is too large for one, and
//! each answer an outcome. The driver chooses the server, logs in, encrypts and keeps connections; it retries nothing,
//! because only the caller knows what may be done twice. No transactions of the server are used: a standalone server, a
//! replica set and a sharded cluster all serve.
//!
//! | for | look at |
//! | --- | --- |
//! | connecting | `connection`, `options`, `server` |
//! | what a request becomes, and what an answer means: functions from values to values | `command`, `reply` |
//! | which error means what, and what may have been done | `error` |
//! | how durable a write is, and what a read may see | `concern` |
//! | what a server lacks: how it is found out, what needs it | `capability`, `probe`, `needs` |
//! | where a collection is kept whose database belongs to the server | `place` |
//! | the store that sends everything as it is | `direct` |
//! | the store for servers that cannot be trusted with an update | `judged` |
//!
//! # What the contract's optional parts come to
//!
//! There is no [`AtomicStore`](handfast_store::AtomicStore) here: no batches, no snapshots, and a request with a
//! [`Ticket`](handfast_store::Ticket) is refused. Transactions over this store are those of the engine Percolator.
//!
//! # What a server may lack
//!
//! Each [`Capability`] is tried when connecting, and a request that needs one that is missing is refused with
//! `CommandNotSupported` (115) and its name, before anything is sent. The suite of the contract knows which cases that are.
//!
//! | | MongoDB 8, Handfast | sharded cluster | FerretDB 1 with SQLite |
//! | --- | --- | --- | --- |
//! | atomic updates | yes | yes | no: [`ConnectOptions::sole_writer`] |
//! | language of filters, updates, pipelines; hints; variables | yes | yes | judged on this side, all of it |
//! | unique indexes | yes | yes | judged on this side |
//! | sparse, partial, expiring, hidden indexes; changes of indexes | yes | yes | no |
//! | rename onto another collection (and so `$out` onto one) | yes | yes | no |
//! | rename to another database | yes | no | no |
//! | decimals, NaN and infinity, MinKey and MaxKey, code | yes | yes | no |
//! | arrays within arrays, field names with a point | yes | yes | no |
//!
//! # What is not here
//!
//! Retries (a decorator's matter), secondaries (a read of one may be older than what was acknowledged), and a promise that
//! a primary is the only one: a deposed primary that does not know it yet answers reads with what it has, up to ten seconds
//! long, with `majority` as with any read concern but the slow `linearizable`.

mod admin;
mod batch;
mod capability;
mod command;
mod concern;
mod connection;
mod cursor;
mod direct;
mod error;
mod judged;
mod needs;
mod options;
mod place;
mod probe;
mod remote;
mod reply;
mod server;

pub use admin::run_admin_command;
pub use capability::{Capabilities, Capability};
pub use concern::Deployment;
pub use connection::{Connection, connect};
pub use options::{ConnectOptions, POOL_CONNECTIONS_MAX, PROBE_DATABASE, REPLY_TIMEOUT, shown};
pub use server::Server;

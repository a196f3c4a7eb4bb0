//! Users, logins, roles, and the check of each command against them.
//!
//! ```text
//! scram    the proof that a client knows a password: bytes to bytes, RFC 5802 and RFC 7677
//! role     what a role allows
//! user     a user as a document
//! users    the users in the store: read, added, changed, removed
//! login    what one connection has proved so far
//! guard    what a command needs, against what its user has
//! ```
//!
//! Users are documents of `admin.system.users` in the store that is served, in MongoDB's shape: they are durable, and
//! are in every backup. Commands on documents never write there, whatever the user; only `root` reads there.

pub(crate) mod guard;
pub(crate) mod login;
pub mod role;
pub mod scram;
pub mod user;
pub mod users;

pub use role::Role;
pub use user::{User, UserName};
pub use users::{Password, Users};

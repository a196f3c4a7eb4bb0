//! Users, logins, roles, and the check of each command against them.
//!
//! ```text
//! scram    the proof that a client knows a password, by RFC 5802 and RFC 7677; without I/O
//! role     what a role allows
//! user     a user as a document
//! users    the users in the store: read, added, changed, removed
//! token    the tokens of a user, which stand for its password
//! login    the login of a connection
//! guard    the check of a command against the roles of its user
//! ```
//!
//! Users are documents of `admin.system.users` in the server's store, with MongoDB's fields, so that they are durable and in every
//! backup. Commands on documents cannot write to this collection, whatever the user; only `root` can read it.

pub(crate) mod guard;
pub(crate) mod login;
pub mod role;
pub mod scram;
pub mod token;
pub mod user;
pub mod users;

pub use guard::is_protected;
pub use role::Role;
pub use token::{NewUserToken, UserToken};
pub use user::{User, UserName};
pub use users::{Password, Users};

//! The users in the store.
//!
//! A connection that has logged in keeps a copy of its user, and the number of changes at that time ([`Users::generation`]). If there
//! were changes since, the user is read again before the next command. So a change of roles applies at once, and a user that is
//! removed loses all rights on its open connections too.
//!
//! No other process changes the store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Binary, DateTime, rawdoc, spec::BinarySubtype};
use handfast_mql::Code;
use handfast_store::source::os_random_bytes;
use handfast_store::{Applied, DocumentStore, Error, Find, Namespace, Result, StoreExt};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard, Semaphore};

use super::guard::Target;
use super::role::Role;
use super::scram::{Credentials, ITERATIONS, Key, SALT_BYTES};
use super::token::{NewUserToken, TOKENS_MAX, UserToken};
use super::user::{ROLES_MAX, User, UserName};

/// The collection of the users.
pub(crate) const USERS: Target<'static> = Target { database: "admin", collection: "system.users" };
/// The collection of the secret from which the salts of unknown users are derived.
pub(crate) const KEYS: Target<'static> = Target { database: "admin", collection: "system.keys" };
/// The collection of the versions of what `admin` holds.
const VERSIONS: Target<'static> = Target { database: "admin", collection: "system.version" };
/// The version of the form in which MongoDB keeps users and roles, since its version 3.0.
pub(crate) const SCHEMA_VERSION: i32 = 5;
/// The `_id` of that secret.
const UNKNOWN_USERS_KEY: &str = "unknown users";
/// The number of passwords that are hashed at the same time. Each takes a core for some milliseconds.
const HASHED_AT_ONCE: usize = 2;

/// A password in plain text.
pub struct Password(String);

impl Password {
    /// Wraps a password in plain text.
    pub fn new(password: impl Into<String>) -> Self {
        Password(password.into())
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// The changes to a user; a field that is `None` stays as it is.
#[derive(Debug, Default)]
pub struct Change {
    /// A new password.
    pub password: Option<Password>,
    /// The roles that replace all others.
    pub roles: Option<Vec<Role>>,
    /// New data of the administrator.
    pub custom_data: Option<RawDocumentBuf>,
}

/// The users of a store.
pub struct Users {
    store: Arc<dyn DocumentStore>,
    /// The lock of changes, each of which reads before it writes.
    changing: Arc<Mutex<()>>,
    hashing: Semaphore,
    generation: Arc<AtomicU64>,
    secret: OnceCell<Key>,
}

impl Users {
    /// Opens the users of this store.
    pub fn new(store: Arc<dyn DocumentStore>) -> Self {
        Users {
            store,
            changing: Arc::default(),
            hashing: Semaphore::new(HASHED_AT_ONCE),
            generation: Arc::default(),
            secret: OnceCell::new(),
        }
    }

    /// Returns a number that grows with each change.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the user of this name.
    pub async fn find(&self, name: &UserName) -> Result<Option<User>> {
        let document = self.store.find_one(&namespace(USERS)?, rawdoc! { "_id": name.id() }).await?;
        document.map(|document| User::of_document(&document)).transpose()
    }

    /// Returns all users, or those of a database, in the order of database and name.
    pub async fn list(&self, database: Option<&str>) -> Result<Vec<User>> {
        let filter = database.map_or_else(RawDocumentBuf::new, |database| rawdoc! { "db": database });
        let documents = self.store.find_all(Find::new(namespace(USERS)?, filter)).await?;
        let users = documents.iter().map(|document| User::of_document(document));
        let mut users = users.collect::<Result<Vec<_>>>()?;
        users.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(users)
    }

    /// Returns whether there is any user.
    pub async fn any(&self) -> Result<bool> {
        Ok(self.store.find_one(&namespace(USERS)?, rawdoc! {}).await?.is_some())
    }

    /// Adds a user.
    ///
    /// # Errors
    /// 51003 if the name is in use; `BadValue` (2) for an invalid password.
    pub async fn add(
        &self,
        name: UserName,
        password: Password,
        roles: Vec<Role>,
        custom_data: Option<RawDocumentBuf>,
    ) -> Result<()> {
        let credentials = self.hash(password).await?;
        let (id, roles) = (fresh_id()?, distinct(roles)?);
        let user = User { id, credentials, roles, custom_data, name, tokens: Vec::new() };
        let changes_lock = self.lock_changes().await;
        let (users, document) = (namespace(USERS)?, user.to_document());
        let add = move |store: Arc<dyn DocumentStore>| async move {
            record_schema_version(&*store).await?;
            store.insert_one(&users, document).await
        };
        let added = self.change_store(changes_lock, add).await;
        match added {
            Err(error) if error.code() == Code::DuplicateKey => {
                Err(Error::command(USER_EXISTS, format!("User \"{}\" already exists", user.name)))
            }
            added => added,
        }
    }

    /// Changes a user.
    ///
    /// # Errors
    /// `UserNotFound` (11); `BadValue` (2) for an invalid password.
    pub async fn change(&self, name: &UserName, change: Change) -> Result<()> {
        let credentials = match change.password {
            Some(password) => Some(self.hash(password).await?),
            None => None,
        };
        self.modify(name, |user| {
            if let Some(credentials) = credentials {
                user.credentials = credentials;
            }
            if let Some(roles) = change.roles {
                user.roles = roles;
            }
            user.custom_data = change.custom_data.or(user.custom_data.take());
            Modified::Logins
        })
        .await
    }

    /// Makes a token of a user. Tokens that have expired are forgotten meanwhile.
    ///
    /// # Errors
    /// `UserNotFound` (11); `BadValue` (2) for an invalid name or time, and for more than [`TOKENS_MAX`] tokens.
    pub async fn add_token(
        &self,
        user: &UserName,
        name: &str,
        now: DateTime,
        expires_at: Option<DateTime>,
    ) -> Result<NewUserToken> {
        let made = UserToken::make(name, now, expires_at)?;
        let mut is_full = false;
        self.modify(user, |user| {
            user.tokens.retain(|token| !token.has_expired(now));
            is_full = user.tokens.len() >= TOKENS_MAX;
            if is_full {
                return Modified::Nothing;
            }
            user.tokens.push(made.token.clone());
            Modified::NoLogin
        })
        .await?;
        if is_full {
            let text = format!("the user '{user}' has {TOKENS_MAX} tokens: revoke one first");
            return Err(Error::command(Code::BadValue, text));
        }
        Ok(made)
    }

    /// Revokes a token of a user; returns whether there was one.
    ///
    /// # Errors
    /// `UserNotFound` (11).
    pub async fn revoke_token(&self, user: &UserName, id: &str) -> Result<bool> {
        let mut is_there = false;
        self.modify(user, |user| {
            let before = user.tokens.len();
            user.tokens.retain(|token| token.id != id);
            is_there = user.tokens.len() < before;
            if is_there { Modified::Logins } else { Modified::Nothing }
        })
        .await?;
        Ok(is_there)
    }

    /// Returns the user of a token, and the token, if it is one that has not expired.
    pub(crate) async fn verify_token(&self, text: &str, now: DateTime) -> Result<Option<(User, UserToken)>> {
        let Some(id) = UserToken::id_of(text) else { return Ok(None) };
        let document = self.store.find_one(&namespace(USERS)?, rawdoc! { "tokens._id": id }).await?;
        let Some(user) = document.map(|document| User::of_document(&document)).transpose()? else { return Ok(None) };
        let token = user.tokens.iter().find(|token| token.is_of(text) && !token.has_expired(now)).cloned();
        Ok(token.map(|token| (user, token)))
    }

    /// Gives a user more roles.
    ///
    /// # Errors
    /// `UserNotFound` (11).
    pub async fn grant(&self, name: &UserName, roles: Vec<Role>) -> Result<()> {
        self.modify(name, |user| {
            user.roles.extend(roles);
            Modified::Logins
        })
        .await
    }

    /// Revokes roles; a role that the user does not have is no error.
    ///
    /// # Errors
    /// `UserNotFound` (11).
    pub async fn revoke(&self, name: &UserName, roles: &[Role]) -> Result<()> {
        self.modify(name, |user| {
            user.roles.retain(|role| !roles.contains(role));
            Modified::Logins
        })
        .await
    }

    async fn modify(&self, name: &UserName, modification: impl FnOnce(&mut User) -> Modified) -> Result<()> {
        let changes_lock = self.lock_changes().await;
        let mut user = self.find(name).await?.ok_or_else(|| not_found(name))?;
        let modified = modification(&mut user);
        if modified == Modified::Nothing {
            return Ok(());
        }
        user.roles = distinct(std::mem::take(&mut user.roles))?;
        let (users, filter, document) = (namespace(USERS)?, rawdoc! { "_id": name.id() }, user.to_document());
        let change =
            move |store: Arc<dyn DocumentStore>| async move { store.update_one(&users, filter, document).await };
        let generation = if modified == Modified::Logins { Arc::clone(&self.generation) } else { Arc::default() };
        self.change_store_then_increment(changes_lock, change, generation).await.map(|_| ())
    }

    /// Removes a user.
    ///
    /// # Errors
    /// `UserNotFound` (11).
    pub async fn remove(&self, name: &UserName) -> Result<()> {
        let changes_lock = self.lock_changes().await;
        let (users, filter) = (namespace(USERS)?, rawdoc! { "_id": name.id() });
        let removed =
            self.change_store(changes_lock, move |store| async move { store.delete_one(&users, filter).await }).await?;
        if removed { Ok(()) } else { Err(not_found(name)) }
    }

    /// Removes the users of a database, and returns how many there were.
    pub async fn remove_all(&self, database: &str) -> Result<u64> {
        let changes_lock = self.lock_changes().await;
        let (users, filter) = (namespace(USERS)?, rawdoc! { "db": database });
        self.change_store(changes_lock, move |store| async move { store.delete_many(&users, filter).await }).await
    }

    /// Adds users, over those of the same names. With `removes_others`, the other users are removed: those of a database, or all.
    ///
    /// The users change one after the other. If this fails, some may have changed.
    pub async fn merge(&self, users: Vec<User>, database: Option<&str>, removes_others: bool) -> Result<()> {
        let changes_lock = self.lock_changes().await;
        let collection = namespace(USERS)?;
        let mut others = database.map_or_else(RawDocumentBuf::new, |database| rawdoc! { "db": database });
        let ids: RawArrayBuf = users.iter().map(|user| user.name.id()).collect();
        others.append(cstr!("_id"), rawdoc! { "$nin": ids });
        self.change_store(changes_lock, move |store| async move {
            record_schema_version(&*store).await?;
            for user in users {
                store.upsert_one(&collection, rawdoc! { "_id": user.name.id() }, user.to_document()).await?;
            }
            if removes_others {
                store.delete_many(&collection, others).await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the credentials for a login with a name that does not exist.
    pub(crate) async fn credentials_of_unknown_user(&self, id: &str) -> Result<Credentials> {
        let secret = self.secret.get_or_try_init(|| self.load_secret()).await?;
        Ok(Credentials::of_unknown_user(secret, id))
    }

    /// Loads or creates the secret. It is stored, because the salt of an unknown user must be the same after a restart, as that of a
    /// user is.
    async fn load_secret(&self) -> Result<Key> {
        let keys = namespace(KEYS)?;
        let fresh = Binary { subtype: BinarySubtype::Generic, bytes: random::<32>()?.to_vec() };
        let insert = rawdoc! { "$setOnInsert": { "key": fresh } };
        self.store.upsert_one(&keys, rawdoc! { "_id": UNKNOWN_USERS_KEY }, insert).await?;
        let document = self.store.find_one(&keys, rawdoc! { "_id": UNKNOWN_USERS_KEY }).await?;
        let key = document.as_ref().and_then(|document| document.get_binary("key").ok());
        key.and_then(|key| key.bytes.try_into().ok()).ok_or_else(|| {
            Error::command(
                Code::UnsupportedFormat,
                format!("the key '{UNKNOWN_USERS_KEY}' in admin.system.keys cannot be read"),
            )
        })
    }

    /// Returns the user of this name, if the password is the user's. The answer takes as long for a name that does not exist.
    pub(crate) async fn verify(&self, name: &UserName, password: Password) -> Result<Option<User>> {
        let nobody = self.credentials_of_unknown_user(&name.id()).await?;
        let user = self.find(name).await?;
        let Credentials { iterations, salt, stored_key, .. } =
            user.as_ref().map_or(nobody, |user| user.credentials.clone());
        match self.hash_with(password, salt, iterations).await {
            Ok(hashed) => Ok(user.filter(|_| hashed.has_stored_key(&stored_key))),
            // The text cannot be a password, so it is that of nobody.
            Err(error) if error.code() == Code::BadValue => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn hash(&self, password: Password) -> Result<Credentials> {
        self.hash_with(password, random::<SALT_BYTES>()?.to_vec(), ITERATIONS).await
    }

    /// Hashes a password on a thread that may block.
    async fn hash_with(&self, Password(password): Password, salt: Vec<u8>, iterations: u32) -> Result<Credentials> {
        // The semaphore is never closed.
        let _place = self.hashing.acquire().await.ok();
        let hashed = tokio::task::spawn_blocking(move || Credentials::derive(&password, salt, iterations)).await;
        match hashed {
            Ok(credentials) => credentials.map_err(|why| Error::command(Code::BadValue, why.to_string())),
            Err(error) => Err(Error::command(Code::InternalError, error.to_string())),
        }
    }

    async fn lock_changes(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changing).lock_owned().await
    }

    /// Applies a change of what logins have, and increments the generation afterwards.
    async fn change_store<T, F, C>(&self, changes_lock: OwnedMutexGuard<()>, change: C) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        C: FnOnce(Arc<dyn DocumentStore>) -> F,
    {
        self.change_store_then_increment(changes_lock, change, Arc::clone(&self.generation)).await
    }

    /// Applies a change, and increments a number afterwards, even if the change has failed, because it may have been applied. Both
    /// run in a task of their own, so that they are finished if the caller is cancelled.
    async fn change_store_then_increment<T, F, C>(
        &self,
        changes_lock: OwnedMutexGuard<()>,
        change: C,
        generation: Arc<AtomicU64>,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        C: FnOnce(Arc<dyn DocumentStore>) -> F,
    {
        let work = change(Arc::clone(&self.store));
        let changing = tokio::spawn(async move {
            let changed = work.await;
            generation.fetch_add(1, Ordering::AcqRel);
            drop(changes_lock);
            changed
        });
        let broken = |error: tokio::task::JoinError| Error::command(Code::InternalError, error.to_string());
        changing.await.map_err(broken)?
    }
}

/// What a modification of a user has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Modified {
    Nothing,
    /// Nothing that a login has.
    NoLogin,
    /// The roles of logins, or whether they hold.
    Logins,
}

const USER_EXISTS: Code = Code(51_003);

fn namespace(target: Target<'_>) -> Result<Namespace> {
    Namespace::new(target.database, target.collection)
}

/// Stores the version of the form of the users, as MongoDB does with the first user. `mongorestore` restores the users of a dump only if it
/// finds the version there.
async fn record_schema_version(store: &dyn DocumentStore) -> Result<()> {
    let versions = namespace(VERSIONS)?;
    let version = rawdoc! { "$set": { "currentVersion": SCHEMA_VERSION } };
    match store.upsert_one(&versions, rawdoc! { "_id": "authSchema" }, version).await {
        // The users do not depend on it, and the next one stores the version again.
        Err(error) if error.applied() == Applied::Maybe => Ok(()),
        stored => stored.map(|_| ()),
    }
}

fn not_found(name: &UserName) -> Error {
    Error::command(Code::UserNotFound, format!("User '{name}' not found"))
}

fn distinct(roles: Vec<Role>) -> Result<Vec<Role>> {
    let mut distinct: Vec<Role> = Vec::new();
    for role in roles {
        if !distinct.contains(&role) {
            distinct.push(role);
        }
    }
    if distinct.len() > ROLES_MAX {
        return Err(Error::command(Code::BadValue, format!("a user may have at most {ROLES_MAX} roles")));
    }
    Ok(distinct)
}

/// Returns a new UUID of version 4.
fn fresh_id() -> Result<[u8; 16]> {
    let mut id: [u8; 16] = random()?;
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    Ok(id)
}

/// Returns random bytes of the operating system, because those of the server's sources may be predictable.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    os_random_bytes(&mut bytes).map_err(|error| {
        Error::command(Code::InternalError, format!("the operating system returned no random bytes: {error}"))
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

//! The users in the store.
//!
//! Who has logged in keeps a copy of its user, and the number of changes at that time ([`Users::generation`]): when the
//! number has moved on, the user is read again before its next command. So a role that is taken away is gone at once,
//! and a user that is removed loses all rights, also where it has logged in already.
//!
//! The store belongs to this process: no other process changes it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::raw::RawDocumentBuf;
use bson::{Binary, rawdoc, spec::BinarySubtype};
use handfast_mql::Code;
use handfast_store::source::os_random_bytes;
use handfast_store::{DocumentStore, Error, Find, Namespace, Result, StoreExt};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard, Semaphore};

use super::role::Role;
use super::scram::{Credentials, ITERATIONS, Key, SALT_BYTES};
use super::user::{ROLES_MAX, User, UserName};

/// The collection of the users.
pub(crate) const USERS: (&str, &str) = ("admin", "system.users");
/// The collection of the secret from which the salts of unknown users are derived.
pub(crate) const KEYS: (&str, &str) = ("admin", "system.keys");
/// The `_id` of that secret.
const UNKNOWN_USERS_KEY: &str = "unknown users";
/// Passwords hashed at the same time: each takes a core for some milliseconds.
const HASHED_AT_ONCE: usize = 2;

/// A password, until it is hashed.
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
    /// All its roles from now on.
    pub roles: Option<Vec<Role>>,
    /// New remarks.
    pub custom_data: Option<RawDocumentBuf>,
}

/// The users of a store.
pub struct Users {
    store: Arc<dyn DocumentStore>,
    /// One change after the other: each reads before it writes.
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

    /// The user of this name.
    pub async fn find(&self, name: &UserName) -> Result<Option<User>> {
        let document = self.store.find_one(&namespace(USERS)?, rawdoc! { "_id": name.id() }).await?;
        document.map(|document| User::of_document(&document)).transpose()
    }

    /// All users, or those of a database, by database and name.
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
    /// 51003 if there is one of that name; `BadValue` (2) for a password that cannot be one.
    pub async fn add(
        &self,
        name: UserName,
        password: Password,
        roles: Vec<Role>,
        custom_data: Option<RawDocumentBuf>,
    ) -> Result<()> {
        let credentials = self.hash(password).await?;
        let user = User { id: fresh_id()?, credentials, roles: distinct(roles)?, custom_data, name };
        let changes_lock = self.lock_changes().await;
        let (users, document) = (namespace(USERS)?, user.to_document());
        let added =
            self.change_store(changes_lock, move |store| async move { store.insert_one(&users, document).await }).await;
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
    /// `UserNotFound` (11); `BadValue` (2) for a password that cannot be one.
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
        })
        .await
    }

    /// Gives a user more roles.
    ///
    /// # Errors
    /// `UserNotFound` (11).
    pub async fn grant(&self, name: &UserName, roles: Vec<Role>) -> Result<()> {
        self.modify(name, |user| user.roles.extend(roles)).await
    }

    /// Revokes roles; a role that the user does not have is no error.
    ///
    /// # Errors
    /// `UserNotFound` (11).
    pub async fn revoke(&self, name: &UserName, roles: &[Role]) -> Result<()> {
        self.modify(name, |user| user.roles.retain(|role| !roles.contains(role))).await
    }

    async fn modify(&self, name: &UserName, modification: impl FnOnce(&mut User)) -> Result<()> {
        let changes_lock = self.lock_changes().await;
        let mut user = self.find(name).await?.ok_or_else(|| not_found(name))?;
        modification(&mut user);
        user.roles = distinct(std::mem::take(&mut user.roles))?;
        let (users, filter, document) = (namespace(USERS)?, rawdoc! { "_id": name.id() }, user.to_document());
        let change =
            move |store: Arc<dyn DocumentStore>| async move { store.update_one(&users, filter, document).await };
        self.change_store(changes_lock, change).await.map(|_| ())
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

    /// Removes the users of a database, and says how many.
    pub async fn remove_all(&self, database: &str) -> Result<u64> {
        let changes_lock = self.lock_changes().await;
        let (users, filter) = (namespace(USERS)?, rawdoc! { "db": database });
        self.change_store(changes_lock, move |store| async move { store.delete_many(&users, filter).await }).await
    }

    /// Returns the credentials against which a proof of this name is checked if there is no such user.
    pub(crate) async fn credentials_of_unknown_user(&self, id: &str) -> Result<Credentials> {
        let secret = self.secret.get_or_try_init(|| self.load_secret()).await?;
        Ok(Credentials::of_unknown_user(secret, id))
    }

    /// The secret is kept: an unknown user's salt must be the same after a restart too, as a known one's is.
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

    /// Hashes a password on a thread that may block.
    async fn hash(&self, Password(password): Password) -> Result<Credentials> {
        let salt = random::<SALT_BYTES>()?.to_vec();
        // The semaphore is never closed.
        let _place = self.hashing.acquire().await.ok();
        let hashed = tokio::task::spawn_blocking(move || Credentials::derive(&password, salt, ITERATIONS)).await;
        match hashed {
            Ok(credentials) => credentials.map_err(|why| Error::command(Code::BadValue, why.to_string())),
            Err(error) => Err(Error::command(Code::InternalError, error.to_string())),
        }
    }

    async fn lock_changes(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changing).lock_owned().await
    }

    /// Carries a change out, and makes everybody look again who a user is: once the change is done or has failed, which
    /// may leave open whether it is done. In a task of its own, as both must happen even if the caller has gone.
    async fn change_store<T, F, C>(&self, changes_lock: OwnedMutexGuard<()>, change: C) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        C: FnOnce(Arc<dyn DocumentStore>) -> F,
    {
        let (work, generation) = (change(Arc::clone(&self.store)), Arc::clone(&self.generation));
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

const USER_EXISTS: Code = Code(51_003);

fn namespace((database, collection): (&str, &str)) -> Result<Namespace> {
    Namespace::new(database, collection)
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
        return Err(Error::command(Code::BadValue, format!("a user may have {ROLES_MAX} roles at most")));
    }
    Ok(distinct)
}

/// A UUID of version 4.
fn fresh_id() -> Result<[u8; 16]> {
    let mut id: [u8; 16] = random()?;
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    Ok(id)
}

/// Returns random bytes of the operating system: those of the server's sources may be predictable.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    os_random_bytes(&mut bytes)
        .map_err(|error| Error::command(Code::InternalError, format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

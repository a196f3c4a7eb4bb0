//! Maps collections in databases that belong to the server.
//!
//! The databases `admin`, `config` and `local` belong to MongoDB, which refuses writes there or interprets them. Collections in
//! databases of these names (such as the tickets in `config.transactions`) are kept in the database `handfast` of the server,
//! under their whole name: `handfast.config.transactions`.

mod contract;
#[cfg(test)]
mod tests;

use handfast_store::{CollectionInfo, DocumentStore, Namespace, Result};

/// The databases that belong to the server.
pub(crate) const SYSTEM_DATABASES: [&str; 3] = ["admin", "config", "local"];
/// The database of the server that keeps collections of these names.
const HANDFAST_DATABASE: &str = "handfast";

/// A decorator that maps namespaces.
pub(crate) struct NamespaceMapping<S>(S);

impl<S: DocumentStore> NamespaceMapping<S> {
    pub(crate) fn new(store: S) -> Self {
        NamespaceMapping(store)
    }

    async fn list(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        if !is_system_database(database) {
            let mut infos = self.0.list_collections(database).await?;
            infos.retain(|info| !belongs_to_other_database(database, &info.name));
            return Ok(infos);
        }
        let prefix = format!("{database}.");
        let infos = self.0.list_collections(HANDFAST_DATABASE).await?.into_iter();
        let ours = infos.filter_map(|info| {
            let name = info.name.strip_prefix(&prefix)?.to_owned();
            Some(CollectionInfo { name, ..info })
        });
        Ok(ours.collect())
    }

    async fn drop_database_mapped(&self, database: &str) -> Result<bool> {
        if database != HANDFAST_DATABASE && !is_system_database(database) {
            return self.0.drop_database(database).await;
        }
        // The database of the server also has collections of other databases.
        let mut any = false;
        for info in self.list(database).await? {
            any |= self.0.drop_collection(&mapped(Namespace::new(database, info.name)?)?).await?;
        }
        Ok(any)
    }

    async fn databases(&self) -> Result<Vec<String>> {
        let mut names = self.0.list_databases().await?;
        if names.iter().any(|name| name == HANDFAST_DATABASE) {
            names.retain(|name| name != HANDFAST_DATABASE);
            for name in SYSTEM_DATABASES.into_iter().chain([HANDFAST_DATABASE]) {
                if !self.list(name).await?.is_empty() {
                    names.push(name.to_owned());
                }
            }
            names.sort();
        }
        Ok(names)
    }
}

fn is_system_database(database: &str) -> bool {
    SYSTEM_DATABASES.contains(&database)
}

/// Returns the namespace of a collection on the server.
///
/// # Errors
/// `InvalidNamespace` (73) if its name is too long there.
fn mapped(namespace: Namespace) -> Result<Namespace> {
    if is_system_database(namespace.database()) {
        Namespace::new(HANDFAST_DATABASE, namespace.to_string())
    } else {
        Ok(namespace)
    }
}

/// Returns whether a collection on the server belongs to another database than the one that keeps it.
fn belongs_to_other_database(database: &str, collection: &str) -> bool {
    let of = collection.split_once('.').map(|(first, _)| first);
    database == HANDFAST_DATABASE && of.is_some_and(is_system_database)
}

//! Where a collection is kept.
//!
//! The databases `admin`, `config` and `local` belong to a MongoDB: it refuses writes there, or takes them for its own. What
//! is kept in databases of these names here (the records of tickets in `config.transactions`) is on the server in the
//! database `handfast`, where the collection's name is the whole name.

mod contract;
#[cfg(test)]
mod tests;

use handfast_store::{CollectionInfo, DocumentStore, Namespace, Result};

/// Databases that belong to the server.
pub(crate) const SERVERS_OWN: [&str; 3] = ["admin", "config", "local"];
/// Where what is ours of these names is.
const OURS: &str = "handfast";

/// A store whose collections are where the server lets them be.
pub(crate) struct Placed<S>(S);

impl<S: DocumentStore> Placed<S> {
    pub(crate) fn new(store: S) -> Self {
        Placed(store)
    }

    async fn list(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        if !is_servers_own(database) {
            let mut infos = self.0.list_collections(database).await?;
            infos.retain(|info| !is_of_another(database, &info.name));
            return Ok(infos);
        }
        let prefix = format!("{database}.");
        let infos = self.0.list_collections(OURS).await?.into_iter();
        let ours = infos.filter_map(|info| {
            let name = info.name.strip_prefix(&prefix)?.to_owned();
            Some(CollectionInfo { name, ..info })
        });
        Ok(ours.collect())
    }

    async fn drop_whole(&self, database: &str) -> Result<bool> {
        if database != OURS && !is_servers_own(database) {
            return self.0.drop_database(database).await;
        }
        // Not the whole database: those of the others stay.
        let mut any = false;
        for info in self.list(database).await? {
            any |= self.0.drop_collection(&kept(Namespace::new(database, info.name)?)?).await?;
        }
        Ok(any)
    }

    async fn databases(&self) -> Result<Vec<String>> {
        let mut names = self.0.list_databases().await?;
        if names.iter().any(|name| name == OURS) {
            names.retain(|name| name != OURS);
            for name in SERVERS_OWN.into_iter().chain([OURS]) {
                if !self.list(name).await?.is_empty() {
                    names.push(name.to_owned());
                }
            }
            names.sort();
        }
        Ok(names)
    }
}

fn is_servers_own(database: &str) -> bool {
    SERVERS_OWN.contains(&database)
}

/// Where a collection is kept.
///
/// # Errors
/// `InvalidNamespace` (73) if its name is too long there.
fn kept(namespace: Namespace) -> Result<Namespace> {
    if is_servers_own(namespace.database()) { Namespace::new(OURS, namespace.to_string()) } else { Ok(namespace) }
}

/// Whether a collection that is kept in a database is one of another database.
fn is_of_another(database: &str, collection: &str) -> bool {
    let of = collection.split_once('.').map(|(first, _)| first);
    database == OURS && of.is_some_and(is_servers_own)
}

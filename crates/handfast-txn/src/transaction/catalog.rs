//! Collections and indexes in a transaction, which can create those that do not exist yet.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::collation::simple;
use handfast_store::index::{Addition, Index, addition};
use handfast_store::validation::Validator;
use handfast_store::{
    BatchLimit, CollectionInfo, CollectionOptions, CreateIndexes, Creation, Error as StoreError, Find, IndexCounts,
    IndexInfo, IndexSpec, Namespace, Result as StoreResult, default_collation,
};

use super::{Inner, Open, unsupported_in};
use crate::Indexes;

impl Inner {
    /// Returns the indexes of a collection, `_id_` first, from the newest catalog or the transaction; `None` if there is no such collection.
    pub(super) async fn indexes(&self, namespace: &Namespace) -> StoreResult<Option<Vec<IndexSpec>>> {
        let own = self.open(|open| Ok(open.writes.creation(namespace).map(|creation| with_id(&creation.indexes))))?;
        if own.is_some() {
            return Ok(own);
        }
        match self.shared.engine.catalog().list_indexes(namespace).await {
            Ok(indexes) => Ok(Some(indexes.into_iter().map(|index| index.spec).collect())),
            Err(error) if error.code() == Code::NamespaceNotFound => {
                // A document that is written makes its collection.
                self.open(|open| Ok(open.writes.has_documents(namespace).then(|| with_id(&[]))))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the indexes besides `_id_` to check before a document gets this new state.
    pub(super) async fn indexes_of_write(
        &self,
        namespace: &Namespace,
        after: Option<&RawDocument>,
    ) -> StoreResult<Indexes> {
        let (known, is_made) =
            self.open(|open| Ok((open.writes.indexes(namespace), open.writes.creation(namespace).is_some())))?;
        match (known, self.shared.engine.catalog().needed_indexes(namespace, after)) {
            (Some(made), _) if is_made => Ok(made),
            (_, Some(needed)) => Ok(needed),
            (Some(known), None) => Ok(known),
            (None, None) => {
                let specs = match self.shared.engine.catalog().kept_indexes(namespace).await {
                    Err(error) if error.code() == Code::NamespaceNotFound => Vec::new(),
                    specs => specs?,
                };
                let compiled = specs.into_iter().skip(1).map(|spec| Index::compile(spec).map(Arc::new));
                let indexes = compiled.collect::<StoreResult<Indexes>>()?;
                self.open(|open| {
                    open.writes.cache_indexes(namespace, Arc::clone(&indexes));
                    Ok(())
                })?;
                Ok(indexes)
            }
        }
    }

    pub(super) async fn create(&self, namespace: &Namespace, options: CollectionOptions) -> StoreResult<()> {
        self.shared.check_not_own(namespace.database())?;
        if options.view.is_some() {
            let text = format!("Cannot create a view in a multi-document transaction: {namespace}");
            return Err(StoreError::command(Code::OperationNotSupportedInTransaction, text));
        }
        Validator::compile(&options)?;
        if self.indexes(namespace).await?.is_some() {
            return Ok(());
        }
        self.check_gone(namespace).await?;
        let uuid = self.shared.sources.uuid();
        let creation = Creation { namespace: namespace.clone(), options, indexes: Vec::new(), uuid };
        self.open(|open| open.writes.create(creation, &self.options))
    }

    pub(super) async fn add_indexes(&self, request: CreateIndexes) -> StoreResult<IndexCounts> {
        let CreateIndexes { namespace, indexes } = request;
        self.shared.check_not_own(namespace.database())?;
        let mut specs = self.indexes(&namespace).await?.unwrap_or_else(|| with_id(&[]));
        let before = specs.len();
        let default = self.default_collation(&namespace)?;
        // Those that the transaction makes name the simple collation, as the commit applies the default.
        let plain = |spec: &IndexSpec| {
            let collation = spec.collation.clone().filter(|collation| *collation != simple());
            IndexSpec { collation, ..spec.clone() }
        };
        let mut known: Vec<_> = specs.iter().map(plain).collect();
        for spec in indexes {
            let spec = default_collation::of_index(spec, default.as_ref())?;
            Index::compile(spec.clone())?;
            if addition(&known, &spec)? == Addition::New {
                known.push(spec.clone());
                specs.push(default_collation::copied_index(spec, default.as_ref()));
            }
        }
        let counts = IndexCounts::new(before, specs.len());
        if self.is_in_store(&namespace).await? {
            // The commit would have to index documents of other transactions.
            return if counts.before == counts.after {
                Ok(counts)
            } else {
                Err(unsupported_in("createIndexes", &namespace))
            };
        }
        self.check_gone(&namespace).await?;
        self.open(|open| {
            specs.remove(0);
            let made = open.writes.creation(&namespace);
            let (options, uuid) = match made {
                Some(creation) => (creation.options.clone(), creation.uuid),
                None => (CollectionOptions::default(), self.shared.sources.uuid()),
            };
            open.writes.create(Creation { namespace, options, indexes: specs, uuid }, &self.options)
        })?;
        Ok(counts)
    }

    /// Refuses to create a collection that was dropped after the snapshot: the transaction would see its documents come and go.
    async fn check_gone(&self, namespace: &Namespace) -> StoreResult<()> {
        let is_made = |open: &mut Open| Ok((open.writes.creation(namespace).is_some(), open.snapshot()));
        let (is_made, snapshot) = self.open(is_made)?;
        if is_made {
            return Ok(());
        }
        let any = Find { limit: Some(1), ..Find::new(namespace.clone(), RawDocumentBuf::new()) };
        if snapshot.find(any).await?.next_page(BatchLimit::REPLY).await?.documents.is_empty() {
            return Ok(());
        }
        let text = format!("write conflict: the collection {namespace} was dropped after the snapshot");
        Err(StoreError::command(Code::WriteConflict, text))
    }

    /// Returns whether the store has the collection.
    async fn is_in_store(&self, namespace: &Namespace) -> StoreResult<bool> {
        match self.shared.engine.catalog().list_indexes(namespace).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Code::NamespaceNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn list(&self, database: &str) -> StoreResult<Vec<CollectionInfo>> {
        let mut collections = self.shared.engine.catalog().list_collections(database).await?;
        self.open(|open| {
            for namespace in open.writes.namespaces().into_iter().filter(|made| made.database() == database) {
                let name = namespace.collection().to_owned();
                if !collections.iter().any(|info| info.name == name) {
                    let made = open.writes.creation(&namespace);
                    let options = made.map(|creation| creation.options.clone()).unwrap_or_default();
                    // A collection that its first document creates gets its id at the commit.
                    let uuid = made.map_or([0; 16], |creation| creation.uuid);
                    collections.push(CollectionInfo { name, options, uuid });
                }
            }
            Ok(())
        })?;
        collections.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(collections)
    }

    pub(super) async fn databases(&self) -> StoreResult<Vec<String>> {
        let mut names = self.shared.engine.catalog().list_databases().await?;
        let own = self.open(|open| Ok(open.writes.namespaces()))?;
        names.extend(own.into_iter().map(|namespace| namespace.database().to_owned()));
        names.sort();
        names.dedup();
        Ok(names)
    }

    pub(super) async fn list_indexes(&self, namespace: &Namespace) -> StoreResult<Vec<IndexInfo>> {
        match self.indexes(namespace).await? {
            Some(specs) => Ok(specs.into_iter().map(|spec| IndexInfo { spec }).collect()),
            None => self.shared.engine.catalog().list_indexes(namespace).await,
        }
    }
}

fn with_id(indexes: &[IndexSpec]) -> Vec<IndexSpec> {
    std::iter::once(IndexSpec::id()).chain(indexes.iter().cloned()).collect()
}

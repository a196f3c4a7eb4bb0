//! Stages that write: `$out` and `$merge`.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{CString, cstr};
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::collation::{simple, with_variable};
use handfast_mql::pipeline::foreign::{MergeOutcome, WhenMatched};
use handfast_mql::pipeline::{Merge, Out};
use handfast_mql::{Code, Collation, Context};

use super::documents::Documents;
use super::{BATCH, Environment};
use crate::{
    CollectionOptions, CreateIndexes, DocumentStore, Error, Find, IndexInfo, IndexSpec, Insert, Namespace,
    RenameCollection, Result, StoreExt, Update, UpdateSpec, UpdateStatement, default_collation, index, insertion, view,
};

/// The number of attempts of a `$merge` to replace a document that others keep changing.
const MERGE_ATTEMPTS_MAX: usize = 100;
/// MongoDB's code for a `$merge` on fields that no unique index makes a key.
const MERGE_NEEDS_UNIQUE_INDEX: Code = Code(51183);

/// The prefix of the collections that `$out` fills; 16 random hexadecimal digits follow, and 16 of the hashed name of the target.
const TEMPORARY: &str = "tmp.agg_out.";

/// Returns whether a collection is one that `$out` fills. A collection of this kind that exists when a store is opened is left
/// over from a crash.
pub fn is_temporary(namespace: &Namespace) -> bool {
    let digits = namespace.collection().strip_prefix(TEMPORARY);
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Returns whether a collection is one that `$out` fills to replace `target`. Both must be in the same part of a routed store.
pub fn is_temporary_of(namespace: &Namespace, target: &Namespace) -> bool {
    let of = namespace.database() == target.database() && is_temporary(namespace);
    of && namespace.collection().ends_with(&format!("{:016x}", digits(target)))
}

/// Hashes a name with FNV-1a, which gives the same result in all processes.
fn digits(namespace: &Namespace) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    namespace.collection().bytes().fold(OFFSET, |digits, byte| (digits ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// `$out`: a new collection with the indexes of the old one is filled, and then takes its place in one step.
pub(super) struct OutStep<'p> {
    environment: &'p Environment,
    out: &'p Out,
    /// `None` when the step has finished.
    input: Option<Box<dyn Documents + 'p>>,
}

impl<'p> OutStep<'p> {
    pub(super) fn new(environment: &'p Environment, out: &'p Out, input: Box<dyn Documents + 'p>) -> Self {
        OutStep { environment, out, input: Some(input) }
    }

    async fn replace(&mut self, mut input: Box<dyn Documents + 'p>) -> Result<()> {
        let Environment { store, sources, .. } = self.environment;
        let target = self.environment.namespace(self.out.target.database.as_deref(), &self.out.target.collection)?;
        let unique = format!("{TEMPORARY}{:016x}{:016x}", sources.random.next_u64(), digits(&target));
        let mut new =
            Temporary { store: Arc::clone(store), namespace: Some(Namespace::new(target.database(), unique)?) };
        let result = self.fill(&new, &target, &mut *input).await;
        match result {
            // The collection has the target's name now and is no longer temporary.
            Ok(()) => new.namespace = None,
            Err(_) => new.remove().await,
        }
        result
    }

    async fn fill(&mut self, new: &Temporary, target: &Namespace, input: &mut (dyn Documents + 'p)) -> Result<()> {
        let (store, Some(namespace)) = (&self.environment.store, &new.namespace) else { return Ok(()) };
        let replaced = Replaced::read(&**store, target).await?;
        let Replaced { options, indexes } = replaced.clone();
        view::refuse(target, &options)?;
        let copied = |spec| default_collation::copied_index(spec, options.collation.as_ref());
        let indexes: Vec<_> = indexes.into_iter().map(copied).collect();
        store.create_collection(namespace, options).await?;
        if !indexes.is_empty() {
            store.create_indexes(CreateIndexes { namespace: namespace.clone(), indexes }).await?;
        }
        while let Some(documents) = input.next_batch().await? {
            let Environment { durability, validation, .. } = *self.environment;
            let insert = Insert { durability, validation, ..Insert::new(namespace.clone(), documents) };
            if let Some(refused) = store.insert(insert).await?.errors.into_iter().next() {
                return Err(refused.error);
            }
        }
        if Replaced::read(&**store, target).await? != replaced {
            let text = format!(
                "the options or indexes of {target} changed while $out computed its new documents, which replace the collection: \
                 run the aggregation again"
            );
            return Err(Error::command(COMMAND_FAILED, text));
        }
        let rename = RenameCollection { from: namespace.clone(), to: target.clone(), drop_target: true };
        store.rename_collection(rename).await
    }
}

/// MongoDB's code for a collection that has changed while `$out` ran.
const COMMAND_FAILED: Code = Code(125);

/// What a collection that `$out` replaces passes on to the new one.
#[derive(Clone, PartialEq)]
struct Replaced {
    options: CollectionOptions,
    /// The indexes besides that on `_id`.
    indexes: Vec<IndexSpec>,
}

impl Replaced {
    async fn read(store: &dyn DocumentStore, target: &Namespace) -> Result<Self> {
        let options = store.collection_options(target).await?;
        let indexes = match store.list_indexes(target).await {
            Ok(indexes) => indexes.into_iter().map(|info| info.spec).filter(|spec| !spec.is_id()).collect(),
            // A view has none, and is refused.
            Err(error) if [Code::NamespaceNotFound, Code::CommandNotSupportedOnView].contains(&error.code()) => {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        Ok(Replaced { options, indexes })
    }
}

#[async_trait]
impl Documents for OutStep<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        if let Some(input) = self.input.take() {
            self.replace(input).await?;
        }
        Ok(None)
    }
}

/// A temporary collection, which is dropped with this value, also when the caller cancels.
struct Temporary {
    store: Arc<dyn DocumentStore>,
    /// `None` once the collection was dropped or renamed.
    namespace: Option<Namespace>,
}

impl Temporary {
    async fn remove(&mut self) {
        if let Some(namespace) = self.namespace.take() {
            drop_quietly(&*self.store, &namespace).await;
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let (Some(namespace), Ok(runtime)) = (self.namespace.take(), tokio::runtime::Handle::try_current()) {
            let store = Arc::clone(&self.store);
            runtime.spawn(async move { drop_quietly(&*store, &namespace).await });
        }
    }
}

/// Drops a collection and ignores errors: the caller returns the error that made it drop the collection.
async fn drop_quietly(store: &dyn DocumentStore, namespace: &Namespace) {
    if let Err(error) = store.drop_collection(namespace).await {
        tracing::warn!(%namespace, %error, "a temporary collection of $out is left behind: drop it");
    }
}

/// `$merge`: replaces, merges or inserts each result in one atomic step.
pub(super) struct MergeStep<'p> {
    environment: &'p Environment,
    merge: &'p Merge,
    input: Option<Box<dyn Documents + 'p>>,
    context: &'p Context,
}

impl<'p> MergeStep<'p> {
    pub(super) fn new(
        environment: &'p Environment,
        merge: &'p Merge,
        input: Box<dyn Documents + 'p>,
        context: &'p Context,
    ) -> Self {
        MergeStep { environment, merge, input: Some(input), context }
    }

    async fn check_unique(&mut self, target: &Namespace) -> Result<()> {
        if self.merge.on == ["_id"] {
            return Ok(());
        }
        let indexes = match self.environment.store.list_indexes(target).await {
            Err(error) if error.code() == Code::NamespaceNotFound => Vec::new(),
            indexes => indexes?,
        };
        let collation = self.context.collation().map(Collation::document);
        let is_key = |info: &IndexInfo| {
            let fields: Vec<_> = info.spec.key.iter().flatten().map(|(name, _)| name.as_str().to_owned()).collect();
            info.spec.unique
                && info.spec.partial_filter.is_none()
                && info.spec.collation.as_deref() == collation
                && fields.len() == self.merge.on.len()
                && self.merge.on.iter().all(|field| fields.contains(field))
        };
        if indexes.iter().any(is_key) {
            return Ok(());
        }
        let text = "Cannot find index to verify that join fields will be unique";
        Err(Error::command(MERGE_NEEDS_UNIQUE_INDEX, text))
    }

    async fn merge_one(&mut self, target: &Namespace, result: RawDocumentBuf) -> Result<()> {
        let store = &self.environment.store;
        let joins_by_id = self.merge.on.iter().any(|field| field == "_id");
        let result = if joins_by_id { insertion::prepare(result, &*self.environment.sources.ids)? } else { result };
        let filter = self.merge.filter(&result)?;
        for _ in 0..MERGE_ATTEMPTS_MAX {
            // Not the default of the target: it is the index that must find the document.
            let variables = match self.merge.on == ["_id"] {
                true => with_variable(RawDocumentBuf::new(), Some(&simple())),
                false => self.context.only_collation(),
            };
            let find = Find { limit: Some(1), variables, ..Find::new(target.clone(), filter.clone()) };
            let existing = store.find(find).await?.next_page(BATCH).await?.documents.into_iter().next();
            if let (Some(_), WhenMatched::Fail) = (&existing, &self.merge.when_matched) {
                return Err(self.taken(target, &filter));
            }
            let done = match self.merge.outcome(&result, existing.as_deref(), self.context)? {
                MergeOutcome::Nothing => true,
                MergeOutcome::Insert(document) => self.insert(target, document).await?,
                MergeOutcome::Replace(document) => match &existing {
                    Some(existing) => self.replace(target, existing, document).await?,
                    None => true,
                },
            };
            if done {
                return Ok(());
            }
        }
        let text = format!("$merge gave up: a document in {target} changed {MERGE_ATTEMPTS_MAX} times meanwhile");
        Err(Error::command(Code::WriteConflict, text))
    }

    /// Inserts a document; returns `false` if another one with the same key was inserted in between.
    async fn insert(&mut self, target: &Namespace, document: RawDocumentBuf) -> Result<bool> {
        let Environment { durability, validation, .. } = *self.environment;
        let insert = Insert { durability, validation, ..Insert::new(target.clone(), vec![document]) };
        match self.environment.store.insert(insert).await?.errors.into_iter().next() {
            None => Ok(true),
            Some(refused) if self.is_race(&refused.error) => Ok(false),
            Some(refused) => Err(refused.error),
        }
    }

    /// Returns whether the duplicate key is on the fields of `on`, and not on another index.
    fn is_race(&self, error: &Error) -> bool {
        let pattern = error.details().and_then(|details| details.get_document("keyPattern").ok());
        let fields: Vec<_> =
            pattern.into_iter().flat_map(|pattern| pattern.iter().flatten()).map(|(name, _)| name.as_str()).collect();
        error.code() == Code::DuplicateKey
            && fields.len() == self.merge.on.len()
            && self.merge.on.iter().all(|field| fields.contains(&field.as_str()))
    }

    /// Replaces a document if it is still as it was read; returns `false` if it has changed.
    async fn replace(&mut self, target: &Namespace, read: &RawDocument, document: RawDocumentBuf) -> Result<bool> {
        let mut filter = rawdoc! { "_id": RawBson::from(insertion::id(read)?) };
        let mut literal = RawDocumentBuf::new();
        literal.append(cstr!("$literal"), read.to_owned());
        let same: RawArrayBuf = [RawBson::from("$$ROOT"), literal.into()].into_iter().collect();
        filter.append(cstr!("$expr"), rawdoc! { "$eq": same });
        let Environment { durability, validation, .. } = *self.environment;
        let statement = UpdateStatement { validation, ..UpdateStatement::one(filter, UpdateSpec::Document(document)) };
        let update = Update { durability, ..Update::new(target.clone(), vec![statement]) };
        let outcome = self.environment.store.update(update).await?;
        match outcome.errors.into_iter().next() {
            Some(refused) if refused.error.code() == Code::WriteConflict => Ok(false),
            Some(refused) => Err(refused.error),
            None => Ok(outcome.matched == 1),
        }
    }

    /// Returns the error of `whenMatched: "fail"`.
    fn taken(&self, target: &Namespace, filter: &RawDocument) -> Error {
        let mut key = RawDocumentBuf::new();
        let mut values = Vec::new();
        for (field, value) in filter.iter().flatten() {
            let name: CString = field.into();
            key.append(name, 1);
            values.push(value.as_document().and_then(|condition| condition.get("$eq").ok().flatten()));
        }
        let index = IndexSpec::new(key);
        let index = if index.is_id() { IndexSpec::id() } else { index };
        let values: Vec<Option<RawBsonRef<'_>>> = values;
        index::duplicate_key(target, &index, &values)
    }
}

#[async_trait]
impl Documents for MergeStep<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        let Some(mut input) = self.input.take() else { return Ok(None) };
        let target = self.merge.target.clone();
        let target = self.environment.namespace(target.database.as_deref(), &target.collection)?;
        self.check_unique(&target).await?;
        while let Some(batch) = input.next_batch().await? {
            for result in batch {
                self.merge_one(&target, result).await?;
            }
        }
        Ok(None)
    }
}

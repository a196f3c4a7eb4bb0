//! Documents of the engine's own that are changed as a whole, by compare-and-set on their version.
//!
//! ```text
//! handfast.catalog   { _id: "catalog", v: 7, .. }         { v: 7 } is replaced by { v: 8 }, or not at all
//! handfast.leases    { _id: "leases",  v: 3, .. }
//! handfast.ages      { _id: "ages",    v: 5, .. }
//! ```
//!
//! Such a document is never removed, and its version only grows: a request that arrives late, or twice, changes nothing.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Error as StoreError, ErrorClass, Insert, Namespace, Result as StoreResult, StoreExt, Update, UpdateSpec,
    UpdateStatement,
};

use super::core::conflict;
use super::rows::Rows;

/// Attempts at a change: others have made another one each time, or an answer got lost.
const ATTEMPTS_MAX: usize = 64;

/// A document that is changed as a whole. The default is what there is before the first change, in version 0.
pub(super) trait VersionedDocument: Default + Send + Sync + 'static {
    /// The name of its collection, and its `_id` there.
    const NAME: &'static str;

    /// Which change of it this is.
    fn version(&self) -> u64;

    /// The version after this one, not changed yet.
    fn next(&self) -> Self;

    /// Whether both say the same, whatever their versions.
    fn is_same(&self, other: &Self) -> bool;

    /// From its document.
    ///
    /// # Errors
    /// `InternalError` (1) if it is not what Handfast writes.
    fn from_document(document: &RawDocument) -> StoreResult<Self>;

    /// Its document, with [`VersionedDocument::NAME`] as `_id` and the version as `v`.
    fn to_document(&self) -> RawDocumentBuf;
}

impl Rows {
    /// The document as it is in the store.
    pub(super) async fn read_versioned<D: VersionedDocument>(&self) -> StoreResult<D> {
        let found = self.store.find_one(&namespace::<D>()?, rawdoc! { "_id": D::NAME }).await?;
        found.map_or(Ok(D::default()), |document| D::from_document(&document))
    }

    /// Changes the document; returns it as it is then. The function may be called several times, on what is there then: also
    /// on what it has made of it before, if the answer to that got lost. What it leaves as it is is not written.
    ///
    /// # Errors
    /// Those of the store: it may be changed. Those of the function.
    pub(super) async fn change_versioned<D: VersionedDocument, T>(
        &self,
        change: impl Fn(&mut D) -> StoreResult<T> + Send + Sync,
    ) -> StoreResult<(T, D)> {
        for _ in 0..ATTEMPTS_MAX {
            let before: D = self.read_versioned().await?;
            let mut next = before.next();
            let answer = change(&mut next)?;
            if next.is_same(&before) {
                return Ok((answer, before));
            }
            if self.replace_versioned(before.version(), &next).await? {
                return Ok((answer, next));
            }
        }
        Err(conflict(format_args!("{}.{} was changed by others again and again", super::DATABASE, D::NAME)))
    }

    /// Puts a version in the place of the one before; `false` if another one is there, or if the answer got lost.
    async fn replace_versioned<D: VersionedDocument>(&self, before: u64, next: &D) -> StoreResult<bool> {
        let (namespace, document) = (namespace::<D>()?, next.to_document());
        let result = if before == 0 {
            let outcome = self.store.insert(Insert::new(namespace, vec![document])).await;
            outcome.map(|outcome| (outcome.inserted > 0, outcome.errors))
        } else {
            let filter = rawdoc! { "_id": D::NAME, "v": signed(before) };
            let statement = UpdateStatement::one(filter, UpdateSpec::Document(document));
            let outcome = self.store.update(Update::new(namespace, vec![statement])).await;
            outcome.map(|outcome| (outcome.matched > 0, outcome.errors))
        };
        match result.map(|(is_there, errors)| (is_there, errors.into_iter().next())) {
            Ok((is_there, None)) => Ok(is_there),
            Ok((_, Some(refused))) if refused.error.code() == Code::DuplicateKey => Ok(false),
            Ok((_, Some(refused))) => Err(refused.error),
            Err(error) if error.class() == ErrorClass::TransientNetwork => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn namespace<D: VersionedDocument>() -> Result<Namespace, StoreError> {
    Namespace::new(super::DATABASE, D::NAME)
}

/// A number as BSON has it.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number of a document.
///
/// # Errors
/// Why it is none.
pub(super) fn number(document: &RawDocument, name: &str) -> Result<u64, String> {
    let value = document.get_i64(name).map_err(|error| error.to_string())?;
    u64::try_from(value).map_err(|error| format!("'{name}': {error}"))
}

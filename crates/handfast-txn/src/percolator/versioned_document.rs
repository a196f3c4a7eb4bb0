//! The engine's own documents that are replaced by compare-and-set on their version.
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

/// The most attempts at a change. An attempt fails if another process was first, or an answer got lost.
const ATTEMPTS_MAX: usize = 64;

/// A document that is replaced as a whole. The default is its state before the first change, version 0.
pub(super) trait VersionedDocument: Default + Send + Sync + 'static {
    /// The name of its collection, and its `_id`.
    const NAME: &'static str;

    /// Returns the number of changes before.
    fn version(&self) -> u64;

    /// Returns a copy with the next version.
    fn next(&self) -> Self;

    /// Returns whether both are equal but for their versions.
    fn is_same(&self, other: &Self) -> bool;

    /// Reads a stored document.
    ///
    /// # Errors
    /// `InternalError` (1) if it is not what Handfast writes.
    fn from_document(document: &RawDocument) -> StoreResult<Self>;

    /// Returns the stored document, with [`VersionedDocument::NAME`] as `_id` and the version as `v`.
    fn to_document(&self) -> RawDocumentBuf;
}

impl Rows {
    /// Reads the document from the store.
    pub(super) async fn read_versioned<D: VersionedDocument>(&self) -> StoreResult<D> {
        let found = self.store.find_one(&namespace::<D>()?, rawdoc! { "_id": D::NAME }).await?;
        found.map_or(Ok(D::default()), |document| D::from_document(&document))
    }

    /// Changes the document, and returns its new state. The function may be called several times, also on its own earlier change if the answer to
    /// that got lost. An unchanged document is not written.
    ///
    /// # Errors
    /// `WriteConflict` (112) if other processes change it again and again; errors of the function. After an error of the store it may be
    /// changed.
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

    /// Replaces a version. Returns `false` if the stored version is another one, or if the answer got lost.
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

/// Converts a number to BSON's type.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Reads a number of a document.
///
/// # Errors
/// Returns a text if the value is not a number.
pub(super) fn number(document: &RawDocument, name: &str) -> Result<u64, String> {
    let value = document.get_i64(name).map_err(|error| error.to_string())?;
    u64::try_from(value).map_err(|error| format!("'{name}': {error}"))
}

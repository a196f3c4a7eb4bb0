//! The index that a find names by a hint: whether it holds a document within the find's bounds, and by which key.

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::index::{ID_INDEX_NAME, Index, same_key};
use handfast_store::selection::check_bounds;
use handfast_store::{Error as StoreError, Find, Hint, IndexSpec, Result as StoreResult};

/// The index that a hint names, with the bounds of the find.
pub(crate) struct HintedIndex {
    index: Index,
    /// The inclusive lower bound.
    min: Option<Vec<u8>>,
    /// The exclusive upper bound.
    max: Option<Vec<u8>>,
}

impl HintedIndex {
    /// Returns the hinted index of a find; `None` if it holds every document and its keys do not matter.
    ///
    /// # Errors
    /// `BadValue` (2) for a hint to no index, 51173 for bounds without a hint, 51174 for bounds that are not the index's, 51175
    /// for a lower bound that is not below the upper one.
    pub(crate) fn of(request: &Find, indexes: &[IndexSpec]) -> StoreResult<Option<Self>> {
        check_bounds(request)?;
        let named = |spec: &&IndexSpec| match &request.hint {
            Some(Hint::Name(name)) => spec.name == *name,
            Some(Hint::Key(key)) => same_key(&spec.key, key),
            None => false,
        };
        let found = indexes.iter().find(named);
        let is_natural = matches!(&request.hint, Some(Hint::Key(key)) if matches!(key.get("$natural"), Ok(Some(_))));
        if request.hint.is_some() && found.is_none() && !is_natural {
            let text = "error processing query: planner returned error: hint provided does not correspond to an existing index";
            return Err(StoreError::command(Code::BadValue, text));
        }
        let matters = request.min.is_some() || request.max.is_some() || request.return_key;
        let Some(spec) = found.filter(|spec| spec.name != ID_INDEX_NAME || matters) else { return Ok(None) };
        let index = Index::compile(spec.clone())?;
        let bound = |bound: &Option<RawDocumentBuf>| bound.as_deref().map(|bound| index.bound(bound)).transpose();
        let (min, max) = (bound(&request.min)?, bound(&request.max)?);
        if let (Some(min), Some(max)) = (&min, &max)
            && min >= max
        {
            return Err(StoreError::command(Code(51175), "min must be less than max"));
        }
        Ok(Some(HintedIndex { index, min, max }))
    }

    /// Returns the first key of a document within the bounds.
    ///
    /// # Errors
    /// Returns the errors of [`Index::keys`].
    pub(crate) fn key(&self, document: &RawDocument) -> StoreResult<Option<Vec<u8>>> {
        let is_wanted = |key: &Vec<u8>| {
            self.min.as_ref().is_none_or(|min| key >= min) && self.max.as_ref().is_none_or(|max| key < max)
        };
        Ok(self.index.keys(document)?.keys.into_iter().find(is_wanted))
    }

    /// Returns a key of a document as `returnKey` shows it.
    ///
    /// # Errors
    /// Returns the errors of [`Index::keys`].
    pub(crate) fn shown(&self, document: &RawDocument, key: &[u8]) -> StoreResult<Option<RawDocumentBuf>> {
        self.index.shown(document, key)
    }
}

//! Checks the pages of a cursor against its request.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::expression::{may_take_long, may_vary};
use handfast_mql::{CompileOptions, Context, Filter, Sort, depth, key};

use super::{Breaches, CheckResult, require};
use crate::decorator::Operation;
use crate::{BatchLimit, Cursor, Find, Page, Result, Sources, insertion, notation};

/// The number of `_id`s that a cursor remembers to find duplicates; they take some megabytes.
const IDS_KEPT_MAX: usize = 100_000;

pub(super) struct CheckedCursor {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) breaches: Arc<Breaches>,
    pub(super) store: &'static str,
    pub(super) expected: Expected,
}

/// The requirements on the pages of a cursor.
#[derive(Default)]
pub(super) struct Expected {
    /// The number of documents that the limit still allows.
    left: Option<u64>,
    ended: bool,
    documents: Option<DocumentCheck>,
}

/// Checks documents that are returned as they are stored against the request.
struct DocumentCheck {
    /// `None` if a second evaluation may have another result, or may take long.
    filter: Option<Filter>,
    sort: Sort,
    context: Context,
    last: Option<RawDocumentBuf>,
    /// The first `_id`s that the cursor returned.
    seen: HashSet<Vec<u8>>,
}

impl Expected {
    /// Derives the requirements from a find. A request that does not compile has none: the store refuses it.
    pub(super) fn of_find(find: &Find, sources: &Sources) -> Self {
        let is_stored_form = find.projection.is_empty() && !find.return_key;
        Expected {
            left: find.limit,
            ended: false,
            documents: if is_stored_form { DocumentCheck::new(find, sources) } else { None },
        }
    }

    /// Returns the requirements on documents that depend on the catalog.
    pub(super) fn of_limit(self) -> Self {
        Expected { documents: None, ..self }
    }

    fn check(&mut self, limit: BatchLimit, page: &Page) -> CheckResult {
        let documents = &page.documents;
        require!(!self.ended || documents.is_empty(), "{} documents after the last page", documents.len());
        require!(!self.ended || page.exhausted, "a page after the last that is not the last");
        require!(page.exhausted || !documents.is_empty(), "an empty page that is not the last");
        let allowed = limit.documents.max(1);
        require!(documents.len() <= allowed, "a page of {} documents, {allowed} allowed", documents.len());
        let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
        let fits = bytes <= limit.bytes || documents.len() == 1;
        require!(fits, "a page of {bytes} bytes, {} allowed", limit.bytes);
        if let Some(left) = &mut self.left {
            let came = documents.len() as u64;
            require!(came <= *left, "{came} documents where {left} were left of the limit");
            *left -= came;
        }
        self.ended = page.exhausted;
        for document in documents {
            depth::check(document.as_bytes(), depth::Limits { bytes_max: usize::MAX, ..depth::Limits::default() })
                .map_err(|error| format!("a document that is no BSON: {error}"))?;
            if let Some(check) = &mut self.documents {
                check.check(document)?;
            }
        }
        Ok(())
    }
}

impl DocumentCheck {
    fn new(find: &Find, sources: &Sources) -> Option<Self> {
        let options = CompileOptions::with_variables(&find.variables).ok()?;
        let filter = Filter::compile(&find.filter, &options).ok()?;
        let is_repeatable = !may_vary(&find.filter) && !may_take_long(&find.filter);
        Some(DocumentCheck {
            filter: is_repeatable.then_some(filter),
            sort: Sort::compile(&find.sort).ok()?.under(options.collation.as_ref()),
            context: sources.context(&find.variables),
            last: None,
            seen: HashSet::new(),
        })
    }

    fn check(&mut self, document: &RawDocumentBuf) -> CheckResult {
        let id = insertion::id(document).map_err(|error| error.to_string())?;
        let encoded = key::encoded(id);
        let is_new =
            if self.seen.len() < IDS_KEPT_MAX { self.seen.insert(encoded) } else { !self.seen.contains(&encoded) };
        require!(is_new, "the document with _id {} came twice", notation::value(id));
        // The store itself reports an error of $expr.
        let matches = |filter: &Filter| filter.matches(document, &self.context).unwrap_or(true);
        require!(self.filter.as_ref().is_none_or(matches), "{document:?} does not match the filter");
        if !self.sort.is_empty() {
            if let Some(last) = &self.last
                && let Ok(order) = self.sort.compare(last, document)
            {
                require!(order.is_le(), "{document:?} after {last:?}");
            }
            self.last = Some(document.clone());
        }
        Ok(())
    }
}

#[async_trait]
impl Cursor for CheckedCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        let page = self.cursor.next_page(limit).await;
        let expected = &mut self.expected;
        self.breaches.check(self.store, Operation::NextPage, page, |page| expected.check(limit, page))
    }

    fn depends_on_catalog(&self) -> bool {
        self.cursor.depends_on_catalog()
    }
}

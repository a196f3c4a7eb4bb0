//! Whether a cursor gives what its request asked for, page by page.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::expression::{may_take_long, may_vary};
use handfast_mql::{CompileOptions, Context, Filter, Sort, depth, key};

use super::{Breaches, Verdict, require};
use crate::decorator::Operation;
use crate::*;

/// `_id`s that a cursor remembers, to notice when one comes again: some megabytes.
const IDS_KEPT_MAX: usize = 100_000;

pub(super) struct CheckedCursor {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) breaches: Arc<Breaches>,
    pub(super) store: &'static str,
    pub(super) expected: Expected,
}

/// What the documents of a cursor must be like.
#[derive(Default)]
pub(super) struct Expected {
    /// Documents that may still come.
    left: Option<u64>,
    ended: bool,
    whole: Option<Whole>,
}

/// The documents come as they are stored: they can be judged by the request.
struct Whole {
    /// None if another evaluation may find something else, or may take any time.
    filter: Option<Filter>,
    sort: Sort,
    context: Context,
    last: Option<RawDocumentBuf>,
    /// The `_id`s that came, the first ones.
    seen: HashSet<Vec<u8>>,
}

impl Expected {
    /// What a find must give. A request that does not compile is the store's to refuse.
    pub(super) fn of_find(find: &Find, sources: &Sources) -> Self {
        let whole = find.projection.is_empty() && !find.return_key;
        Expected { left: find.limit, ended: false, whole: if whole { Whole::new(find, sources) } else { None } }
    }

    fn check(&mut self, limit: BatchLimit, page: &Page) -> Verdict {
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
            if let Some(whole) = &mut self.whole {
                whole.check(document)?;
            }
        }
        Ok(())
    }
}

impl Whole {
    fn new(find: &Find, sources: &Sources) -> Option<Self> {
        let options = CompileOptions::with_variables(&find.variables).ok()?;
        let filter = Filter::compile(&find.filter, &options).ok()?;
        let is_repeatable = !may_vary(&find.filter) && !may_take_long(&find.filter);
        Some(Whole {
            filter: is_repeatable.then_some(filter),
            sort: Sort::compile(&find.sort).ok()?,
            context: sources.context(&find.variables),
            last: None,
            seen: HashSet::new(),
        })
    }

    fn check(&mut self, document: &RawDocumentBuf) -> Verdict {
        let id = insertion::id(document).map_err(|error| error.to_string())?;
        let encoded = key::encoded(id);
        let is_new =
            if self.seen.len() < IDS_KEPT_MAX { self.seen.insert(encoded) } else { !self.seen.contains(&encoded) };
        require!(is_new, "the document with _id {} came twice", notation::value(id));
        // An error of $expr is the store's to report.
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
        self.breaches.judge(self.store, Operation::NextPage, page, |page| expected.check(limit, page))
    }
}

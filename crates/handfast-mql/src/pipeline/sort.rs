//! `$sort`, which keeps only as many documents as a later `$limit` needs.

use bson::{RawDocument, RawDocumentBuf};

use super::operator::{Flow, Operator};
use crate::{
    context::{CompileOptions, Context},
    error::Result,
    sort::{Sort, Sorted, Sorter},
};

/// A compiled `$sort`.
#[derive(Debug)]
pub struct SortStage {
    sort: Sort,
    /// The largest number of documents that a later `$limit` needs.
    limit: Option<u64>,
}

impl SortStage {
    /// Compiles `{<field>: 1 or -1, ..}`.
    ///
    /// # Errors
    /// Returns the errors of [`Sort::compile`], 15976 for no field at all, and 7472500 for a field that is written twice.
    pub fn compile(document: &RawDocument, options: &CompileOptions) -> Result<SortStage> {
        if document.is_empty() {
            return Err(crate::Error::new(crate::Code(15_976), "$sort stage must have at least one sort key"));
        }
        let sort = Sort::compile(document)?.under(options.collation.as_ref());
        let mut paths: Vec<&str> = sort.fields().iter().map(|field| field.path().as_str()).collect();
        paths.sort_unstable();
        if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
            let text = format!("$sort key must not contain duplicate keys (duplicate: '{twice}')");
            return Err(crate::Error::new(crate::Code(7_472_500), text));
        }
        Ok(SortStage { sort, limit: None })
    }

    /// Returns the sort.
    pub fn sort(&self) -> &Sort {
        &self.sort
    }

    /// Returns the most documents that are needed, if there is a limit.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = Some(self.limit.map_or(limit, |known| known.min(limit)));
    }

    pub(super) fn operator(&self, context: &Context) -> Box<dyn Operator + '_> {
        let limit = self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Box::new(Sorting { sort: &self.sort, state: State::Sorting(Sorter::spilling(limit, context)) })
    }
}

struct Sorting<'p> {
    sort: &'p Sort,
    state: State,
}

enum State {
    Sorting(Sorter<RawDocumentBuf>),
    /// The sorted documents that have not been returned yet. They count as held until then.
    Sorted(Sorted<RawDocumentBuf>),
    Ended,
}
const PORTION_BYTES: usize = 1024 * 1024;

impl Operator for Sorting<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let State::Sorting(sorter) = &mut self.state else { return Ok(Flow::Done) };
        let key = self.sort.key(&document)?;
        let bytes = document.as_bytes().len();
        sorter.push(key, document, bytes)?;
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let mut sorted = match std::mem::replace(&mut self.state, State::Ended) {
            State::Sorting(sorter) => sorter.into_sorted()?,
            State::Sorted(sorted) => sorted,
            State::Ended => return Ok(Flow::Done),
        };
        let mut bytes = 0;
        while bytes < PORTION_BYTES {
            let Some(document) = sorted.next().transpose()? else { return Ok(Flow::Done) };
            bytes += document.as_bytes().len();
            out.push(document);
        }
        self.state = State::Sorted(sorted);
        Ok(Flow::More)
    }
}

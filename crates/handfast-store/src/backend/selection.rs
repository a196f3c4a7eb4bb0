//! What a find asks for, compiled: which documents, in which order, how many of them, which of their fields.
//!
//! A backend finds documents that may match, in any way it likes, and hands them in as [`Candidate`]s;
//! [`Selection::cursor`] does the rest. What the backend's planner already did (an index gave the order, the bounds were
//! the whole filter) it says in [`Given`], and it is not done again.

mod point;

pub use point::id_alone;

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::filter::{Comparison, Predicate};
use handfast_mql::sort::Sorter;
use handfast_mql::{Code, CompileOptions, Context, Filter, MatchPosition, Projection, Sort, key};

use crate::page::Paged;
use crate::{Cursor, Error, Find, Result, Sources};

#[cfg(test)]
mod tests;

/// A document that may match, and what only the backend knows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The document.
    pub document: RawDocumentBuf,
    /// The key of the index that it was found by, if `return_key` was asked for.
    pub key: Option<RawDocumentBuf>,
    /// The store's own id of the record, if `show_record_id` was asked for.
    pub record: Option<i64>,
}

impl From<RawDocumentBuf> for Candidate {
    fn from(document: RawDocumentBuf) -> Self {
        Candidate { document, key: None, record: None }
    }
}

/// What the backend has done already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The candidates come in the order that was asked for.
    pub sorted: bool,
    /// All candidates match.
    pub filtered: bool,
}

/// A compiled find.
#[derive(Debug)]
pub struct Selection {
    filter: Filter,
    sort: Sort,
    projection: Projection,
    skip: u64,
    limit: Option<u64>,
    return_key: bool,
    context: Context,
}

impl Selection {
    /// Compiles a find.
    ///
    /// # Errors
    /// Those of the language; `BadValue` (2) for a find with `min` or `max` but no hint is the backend's, see
    /// [`check_bounds`].
    pub fn compile(find: &Find, sources: &Sources) -> Result<Self> {
        let options = CompileOptions::with_variables(&find.variables)?;
        Ok(Selection {
            filter: Filter::compile(&find.filter, &options)?,
            sort: Sort::compile(&find.sort)?,
            projection: Projection::compile(&find.projection, &options)?,
            skip: find.skip,
            limit: find.limit,
            return_key: find.return_key,
            context: sources.context(&find.variables),
        })
    }

    /// Which documents.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// In which order.
    pub fn sort(&self) -> &Sort {
        &self.sort
    }

    /// Time, chance and variables of this find.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// A cursor over the candidates that are wanted. The iterator is asked for no more than that needs.
    pub fn cursor(
        self,
        candidates: impl Iterator<Item = Result<Candidate>> + Send + 'static,
        given: Given,
    ) -> Box<dyn Cursor> {
        Box::new(Paged::new(self.documents(candidates, given)))
    }

    /// The candidates that are wanted, as the caller is to see them.
    pub fn documents<I: Iterator<Item = Result<Candidate>>>(self, candidates: I, given: Given) -> Documents<I> {
        let source = if given.sorted || self.sort.is_empty() {
            Source::Streaming(candidates)
        } else {
            Source::Unsorted(candidates)
        };
        let left = self.limit.unwrap_or(u64::MAX);
        Documents { to_skip: self.skip, left, selection: self, filtered: given.filtered, source }
    }

    /// A candidate that matches, as the caller is to see it.
    ///
    /// # Errors
    /// Those of the projection.
    pub fn shown(&self, candidate: Candidate) -> Result<RawDocumentBuf> {
        let position = self.matching(&candidate.document, true)?.unwrap_or_default();
        self.show(candidate, position)
    }

    fn matching(&self, document: &RawDocument, filtered: bool) -> Result<Option<MatchPosition>> {
        if self.projection.needs_position() {
            return Ok(self.filter.matches_position(document, &self.context)?);
        }
        let matches = filtered || self.filter.matches(document, &self.context)?;
        Ok(matches.then(MatchPosition::default))
    }

    fn show(&self, candidate: Candidate, position: MatchPosition) -> Result<RawDocumentBuf> {
        if self.return_key {
            return Ok(candidate.key.unwrap_or_default());
        }
        let mut shown = if self.projection.is_empty() {
            candidate.document
        } else {
            self.projection.apply(&candidate.document, position, &self.context)?
        };
        if let Some(record) = candidate.record {
            shown.append(cstr!("$recordId"), record);
        }
        Ok(shown)
    }
}

/// The documents that a selection wants of its candidates.
pub struct Documents<I> {
    selection: Selection,
    filtered: bool,
    to_skip: u64,
    left: u64,
    source: Source<I>,
}

/// A candidate that matched.
type Match = (Candidate, MatchPosition);

enum Source<I> {
    Streaming(I),
    Unsorted(I),
    Sorted(Box<dyn Iterator<Item = Match> + Send>),
}

impl<I: Iterator<Item = Result<Candidate>>> Documents<I> {
    fn next_match(&mut self) -> Result<Option<Match>> {
        if let Source::Unsorted(candidates) = &mut self.source {
            let sorted = sort(&self.selection, candidates, self.filtered)?;
            self.source = Source::Sorted(sorted);
        }
        match &mut self.source {
            Source::Sorted(matches) => Ok(matches.next()),
            Source::Streaming(candidates) | Source::Unsorted(candidates) => {
                for candidate in candidates {
                    let candidate = candidate?;
                    if let Some(position) = self.selection.matching(&candidate.document, self.filtered)? {
                        return Ok(Some((candidate, position)));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl<I: Iterator<Item = Result<Candidate>>> Iterator for Documents<I> {
    type Item = Result<RawDocumentBuf>;

    fn next(&mut self) -> Option<Result<RawDocumentBuf>> {
        if self.left == 0 {
            return None;
        }
        loop {
            match self.next_match().transpose()? {
                Ok(_) if self.to_skip > 0 => self.to_skip -= 1,
                Ok((candidate, position)) => {
                    self.left -= 1;
                    return Some(self.selection.show(candidate, position));
                }
                Err(error) => {
                    self.left = 0;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Sorts in memory, which is bounded; with a limit, only so many are kept.
fn sort(
    selection: &Selection,
    candidates: &mut impl Iterator<Item = Result<Candidate>>,
    filtered: bool,
) -> Result<Box<dyn Iterator<Item = Match> + Send>> {
    let kept = selection.limit.map(|limit| limit.saturating_add(selection.skip));
    let mut sorter = Sorter::new(kept.and_then(|kept| usize::try_from(kept).ok()), &selection.context);
    for candidate in candidates {
        let candidate = candidate?;
        if let Some(position) = selection.matching(&candidate.document, filtered)? {
            let key = selection.sort.key(&candidate.document)?;
            let bytes = candidate.document.as_bytes().len();
            sorter.push(key, (candidate, position), bytes)?;
        }
    }
    Ok(Box::new(sorter.into_sorted()))
}

/// The `_id`s of all documents that can match, in ascending order and each once, if the filter names them.
pub fn named_ids(filter: &Filter) -> Option<Vec<RawBsonRef<'_>>> {
    filter.predicates("_id").find_map(|predicate| match predicate {
        Predicate::Compare(Comparison::Equal, operand) => Some(vec![operand.value()]),
        // They are in ascending order, each once.
        Predicate::In(choices) if choices.patterns().is_empty() => {
            Some(choices.values().iter().map(|choice| choice.value()).collect())
        }
        _ => None,
    })
}

/// [`named_ids`], as keys.
pub fn named_keys(filter: &Filter) -> Option<Vec<Vec<u8>>> {
    named_ids(filter).map(|ids| ids.into_iter().map(key::encoded).collect())
}

/// Whether a find may have the bounds that it has.
///
/// # Errors
/// 51173 for `min` or `max` without a hint.
pub fn check_bounds(find: &Find) -> Result<()> {
    if (find.min.is_some() || find.max.is_some()) && find.hint.is_none() {
        let text = "When using min()/max() a hint of which index to use must be provided";
        return Err(Error::command(Code(51173), text));
    }
    Ok(())
}

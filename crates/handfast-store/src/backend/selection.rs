//! A compiled find: filter, sort, skip, limit and projection.
//!
//! A backend finds documents that may match, in any way it likes, and passes them as [`Candidate`]s;
//! [`Selection::cursor`] does the rest. With [`BackendGuarantees`] the backend says what its planner has done already (an index
//! gave the order, the bounds were the whole filter), so that it is not done again.

mod point;

pub use point::{id_alone, named_id};

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::filter::{Comparison, NecessaryConditions, Predicate};
use handfast_mql::sort::Sorter;
use handfast_mql::spill::Spilled;
use handfast_mql::{Code, CompileOptions, Context, Filter, MatchPosition, Projection, Sort, key};

use crate::page::IteratorCursor;
use crate::{Cursor, Error, Find, Result, Sources};

#[cfg(test)]
mod tests;

/// A document that may match.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The document.
    pub document: RawDocumentBuf,
    /// The index key that led to it, if the find has `return_key`.
    pub key: Option<RawDocumentBuf>,
    /// The record id of the store, if the find has `show_record_id`.
    pub record: Option<i64>,
}

impl Spilled for Candidate {
    fn write(&self, out: &mut Vec<u8>) {
        self.document.write(out);
        self.key.write(out);
        self.record.map(i64::cast_unsigned).write(out);
    }

    fn read(bytes: &mut &[u8]) -> handfast_mql::Result<Self> {
        let (document, key) = (RawDocumentBuf::read(bytes)?, Option::read(bytes)?);
        Ok(Candidate { document, key, record: Option::<u64>::read(bytes)?.map(u64::cast_signed) })
    }
}

impl From<RawDocumentBuf> for Candidate {
    fn from(document: RawDocumentBuf) -> Self {
        Candidate { document, key: None, record: None }
    }
}

/// Properties of the candidates that the backend guarantees, so that they are not established again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendGuarantees {
    /// The candidates are in the requested order.
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
    /// Compiles a find. The backend checks `min` and `max` itself ([`check_bounds`]).
    pub fn compile(find: &Find, sources: &Sources) -> Result<Self> {
        let options = CompileOptions::with_variables(&find.variables)?;
        Ok(Selection {
            filter: Filter::compile(&find.filter, &options)?,
            sort: Sort::compile(&find.sort)?.under(options.collation.as_ref()),
            projection: Projection::compile(&find.projection, &options)?,
            skip: find.skip,
            limit: find.limit,
            return_key: find.return_key,
            context: sources.context(&find.variables).with_disk_use(find.allow_disk_use),
        })
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the conditions that every selected document fulfils, with the values of this find's variables.
    pub fn necessary_conditions(&self) -> NecessaryConditions<'_> {
        self.filter.necessary_conditions(&self.context)
    }

    /// Returns the sort.
    pub fn sort(&self) -> &Sort {
        &self.sort
    }

    /// Returns the context of this find: time, randomness and variables.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns a cursor over the selected candidates, which advances the iterator no further than necessary.
    pub fn cursor(
        self,
        candidates: impl Iterator<Item = Result<Candidate>> + Send + 'static,
        given: BackendGuarantees,
    ) -> Box<dyn Cursor> {
        Box::new(IteratorCursor::new(self.documents(candidates, given)))
    }

    /// Returns the selected candidates in the form that the caller sees.
    pub fn documents<I: Iterator<Item = Result<Candidate>>>(
        self,
        candidates: I,
        given: BackendGuarantees,
    ) -> Documents<I> {
        let source = if given.sorted || self.sort.is_empty() {
            Source::Streaming(candidates)
        } else {
            Source::Unsorted(candidates)
        };
        let left = self.limit.unwrap_or(u64::MAX);
        Documents { to_skip: self.skip, left, selection: self, filtered: given.filtered, source }
    }

    /// Returns a matching candidate in the form that the caller sees.
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

/// An iterator over the selected documents.
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
    Sorted(Box<dyn Iterator<Item = handfast_mql::Result<Match>> + Send>),
}

impl<I: Iterator<Item = Result<Candidate>>> Documents<I> {
    fn next_match(&mut self) -> Result<Option<Match>> {
        if let Source::Unsorted(candidates) = &mut self.source {
            let sorted = sort(&self.selection, candidates, self.filtered)?;
            self.source = Source::Sorted(sorted);
        }
        match &mut self.source {
            Source::Sorted(matches) => Ok(matches.next().transpose()?),
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

/// Sorts in bounded memory; with a limit, it keeps no more documents than that.
fn sort(
    selection: &Selection,
    candidates: &mut impl Iterator<Item = Result<Candidate>>,
    filtered: bool,
) -> Result<Box<dyn Iterator<Item = handfast_mql::Result<Match>> + Send>> {
    let kept = selection.limit.map(|limit| limit.saturating_add(selection.skip));
    let mut sorter = Sorter::spilling(kept.and_then(|kept| usize::try_from(kept).ok()), &selection.context);
    for candidate in candidates {
        let candidate = candidate?;
        if let Some(position) = selection.matching(&candidate.document, filtered)? {
            let key = selection.sort.key(&candidate.document)?;
            let bytes = candidate.document.as_bytes().len();
            sorter.push(key, (candidate, position), bytes)?;
        }
    }
    Ok(Box::new(sorter.into_sorted()?))
}

/// Returns the `_id`s of all documents that can match, in ascending order without duplicates, if the conditions name them.
pub fn named_ids<'c>(conditions: &'c NecessaryConditions<'_>) -> Option<Vec<RawBsonRef<'c>>> {
    conditions.predicates("_id").find_map(|predicate| match predicate {
        Predicate::Compare(Comparison::Equal, operand) => Some(vec![operand.value()]),
        // They are in ascending order, each once.
        Predicate::In(choices) if choices.patterns().is_empty() => {
            Some(choices.values().iter().map(|choice| choice.value()).collect())
        }
        _ => None,
    })
}

/// Returns the encoded keys of [`named_ids`].
pub fn named_keys(conditions: &NecessaryConditions<'_>) -> Option<Vec<Vec<u8>>> {
    named_ids(conditions).map(|ids| ids.into_iter().map(key::encoded).collect())
}

/// Checks the bounds of a find.
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

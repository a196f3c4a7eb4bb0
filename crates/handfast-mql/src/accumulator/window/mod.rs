//! The states of accumulators over a window that moves forward over documents.
//!
//! A document enters a window at its end and leaves it at its beginning. A state has the result of the documents between: sums from
//! merged totals ([`MergeQueue`]), the least and greatest from an ordered map, sets from counts, quantiles from sorted numbers.
//! So a step of a window takes about as long as its result is large, and not as long as the window is wide.
//! A state of which no document leaves keeps only what a later result can show.

mod merge_queue;
mod sorted;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

pub(crate) use self::merge_queue::{Merge, MergeQueue};
use self::sorted::SortedNumbers;
use super::{
    Average, Deviation, Sum,
    compile::{Accumulator, Kind, Selection, bytes_of, count_for, owned_or_null},
    quantile::quantiles_by,
    state::{array, number, number_or_null},
};
use crate::{
    context::Context,
    error::Result,
    expression::{Value, object::merge_value, value},
    key::{self, Direction},
    number::Number,
};

/// The overhead of an entry of a map or a queue, in bytes.
const ENTRY_BYTES: usize = 64;

/// The state of an accumulator over the documents in a window.
#[derive(Debug)]
pub(crate) struct WindowState {
    kept: Kept,
    /// Documents may leave the window.
    removes: bool,
    /// The bytes of the values of maps and queues.
    bytes: usize,
}

#[derive(Debug)]
enum Kept {
    Sum(MergeQueue<Sum>),
    Average(MergeQueue<Average>),
    Deviation(MergeQueue<Deviation>),
    Count(i64),
    /// The values of the documents in their order; none for a document without a value.
    Values {
        values: VecDeque<Option<RawBson>>,
        trim: Trim,
    },
    /// The documents of a window from which none leaves, merged.
    Merged(RawDocumentBuf),
    Set(CountedSet),
    Ordered(Ordered),
    Numbers {
        sorted: SortedNumbers,
        arrived: VecDeque<Option<f64>>,
    },
}

/// The values that a window needs from which no document leaves.
#[derive(Clone, Copy, Debug)]
enum Trim {
    All,
    First(usize),
    Last(usize),
}

/// The different values of the documents, with the number of their occurrences.
#[derive(Debug, Default)]
struct CountedSet {
    values: BTreeMap<Vec<u8>, (RawBson, usize)>,
    /// The identities of the values of each document.
    arrived: VecDeque<Vec<Vec<u8>>>,
}

/// Values by their keys, and those with equal keys by their arrival.
#[derive(Debug)]
struct Ordered {
    n: usize,
    /// The result is the last n values, not the first.
    last: bool,
    values: BTreeMap<(Vec<u8>, u64), RawBson>,
    /// The keys of the documents, of which the oldest arrived as number `oldest`; none for a document without a value.
    arrived: VecDeque<Option<Vec<u8>>>,
    oldest: u64,
    next: u64,
}

impl Ordered {
    fn new(n: usize, last: bool) -> Self {
        Ordered { n, last, values: BTreeMap::new(), arrived: VecDeque::new(), oldest: 0, next: 0 }
    }
}

impl WindowState {
    /// Creates the state of an empty window.
    ///
    /// # Errors
    /// Returns the errors of the `n` of `$firstN` and its like.
    pub(crate) fn new(accumulator: &Accumulator, removes: bool, context: &Context) -> Result<Self> {
        let empty = RawDocumentBuf::new();
        let values = |trim| Kept::Values { values: VecDeque::new(), trim };
        let kept = match &accumulator.kind {
            Kind::Sum(_) => Kept::Sum(MergeQueue::new(removes)),
            Kind::Average(_) => Kept::Average(MergeQueue::new(removes)),
            Kind::Deviation { .. } => Kept::Deviation(MergeQueue::new(removes)),
            Kind::Count => Kept::Count(0),
            Kind::First(_) => values(Trim::First(1)),
            Kind::Last(_) => values(Trim::Last(1)),
            Kind::MergeObjects(_) if !removes => Kept::Merged(RawDocumentBuf::new()),
            Kind::Push(_) | Kind::ConcatArrays(_) | Kind::MergeObjects(_) => values(Trim::All),
            Kind::AddToSet(_) | Kind::SetUnion(_) => Kept::Set(CountedSet::default()),
            Kind::Minimum(_) | Kind::Maximum(_) => Kept::Ordered(Ordered::new(1, false)),
            Kind::SelectedN { n, selection, .. } => {
                let n = count_for(n, &empty, context)?;
                match selection {
                    Selection::First => values(Trim::First(n)),
                    Selection::Last => values(Trim::Last(n)),
                    Selection::Smallest | Selection::Largest => Kept::Ordered(Ordered::new(n, false)),
                }
            }
            Kind::TopN { n, bottom, .. } => {
                let n = n.as_ref().map_or(Ok(1), |n| count_for(n, &empty, context))?;
                Kept::Ordered(Ordered::new(n, *bottom))
            }
            Kind::Quantile { .. } => Kept::Numbers { sorted: SortedNumbers::default(), arrived: VecDeque::new() },
        };
        Ok(WindowState { kept, removes, bytes: ENTRY_BYTES })
    }

    /// Returns about how many bytes the state holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
            + match &self.kept {
                Kept::Sum(queue) => queue.bytes(),
                Kept::Average(queue) => queue.bytes(),
                Kept::Deviation(queue) => queue.bytes(),
                _ => 0,
            }
    }

    /// Adds the next document at the end of the window.
    ///
    /// # Errors
    /// Returns the errors of the expressions.
    pub(crate) fn enter(&mut self, accumulator: &Accumulator, document: &RawDocument, context: &Context) -> Result<()> {
        let WindowState { kept, removes, bytes } = self;
        match (kept, &accumulator.kind) {
            (Kept::Count(count), _) => *count += 1,
            (Kept::Sum(queue), Kind::Sum(input)) => {
                let mut one = Sum::default();
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    one.add(number);
                }
                queue.enter(one);
            }
            (Kept::Average(queue), Kind::Average(input)) => {
                let mut one = Average::default();
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    one.add(number);
                }
                queue.enter(one);
            }
            (Kept::Deviation(queue), Kind::Deviation { input, .. }) => {
                let mut one = Deviation::default();
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    one.add(number);
                }
                queue.enter(one);
            }
            (Kept::Merged(merged), Kind::MergeObjects(input)) => {
                merge_value(merged, &input.evaluate(document, context)?)?;
                *bytes = ENTRY_BYTES + merged.as_bytes().len();
            }
            (Kept::Values { values, trim }, kind) => {
                let value = value_of(kind, document, context)?;
                enter_value(values, value, if *removes { Trim::All } else { *trim }, bytes);
            }
            (Kept::Set(set), Kind::AddToSet(input)) => {
                let value = input.evaluate(document, context)?;
                set.enter(value.get().map(Ok), context, *removes, bytes)?;
            }
            (Kept::Set(set), Kind::SetUnion(input)) => {
                let value = input.evaluate(document, context)?;
                let items = array("$setUnion", &value)?.into_iter().flat_map(value::items);
                set.enter(items, context, *removes, bytes)?;
            }
            (Kept::Ordered(ordered), kind) => {
                let keyed = keyed_value(kind, document, context)?;
                ordered.enter(keyed, *removes, bytes);
            }
            (Kept::Numbers { sorted, arrived }, Kind::Quantile { input, .. }) => {
                let number = number(&input.evaluate(document, context)?).map(Number::to_f64);
                *bytes += 2 * size_of::<Option<f64>>();
                if let Some(number) = number {
                    sorted.insert(number);
                }
                if *removes {
                    arrived.push_back(number);
                }
            }
            // A state is always fed by its own accumulator.
            _ => {}
        }
        Ok(())
    }

    /// Removes the oldest document of the window.
    pub(crate) fn leave(&mut self) {
        let bytes = &mut self.bytes;
        match &mut self.kept {
            Kept::Count(count) => *count -= 1,
            Kept::Sum(queue) => queue.leave(),
            Kept::Average(queue) => queue.leave(),
            Kept::Deviation(queue) => queue.leave(),
            Kept::Values { values, .. } => {
                if let Some(gone) = values.pop_front() {
                    *bytes -= entry_bytes(gone.as_ref());
                }
            }
            Kept::Merged(_) => {}
            Kept::Set(set) => set.leave(bytes),
            Kept::Ordered(ordered) => ordered.leave(bytes),
            Kept::Numbers { sorted, arrived } => {
                *bytes -= 2 * size_of::<Option<f64>>();
                if let Some(Some(gone)) = arrived.pop_front() {
                    sorted.remove(gone);
                }
            }
        }
    }

    /// Returns the result for the documents in the window.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) if the value is too large; the interrupt.
    pub(crate) fn result(&self, accumulator: &Accumulator, context: &Context) -> Result<RawBson> {
        Ok(match &self.kept {
            Kept::Count(count) => i32::try_from(*count).map_or(RawBson::Int64(*count), RawBson::Int32),
            Kept::Sum(queue) => RawBson::from(queue.total().total()),
            Kept::Average(queue) => number_or_null(queue.total().result()),
            Kept::Deviation(queue) => {
                let sample = matches!(accumulator.kind, Kind::Deviation { sample: true, .. });
                queue.total().result(sample).map_or(RawBson::Null, RawBson::Double)
            }
            Kept::Values { values, trim } => result_of_values(values, *trim, &accumulator.kind, context)?,
            Kept::Merged(merged) => RawBson::Document(merged.clone()),
            Kept::Set(set) => array_of(set.values.values().map(|(value, _)| value.as_raw_bson_ref()), context)?,
            Kept::Ordered(ordered) => ordered.result(&accumulator.kind, context)?,
            Kept::Numbers { sorted, .. } => match &accumulator.kind {
                Kind::Quantile { quantiles, .. } => quantiles_by(sorted.len(), |n| sorted.nth(n), quantiles),
                _ => RawBson::Null,
            },
        })
    }
}

/// Evaluates the input of an accumulator that keeps the values of its documents.
fn value_of(kind: &Kind, document: &RawDocument, context: &Context) -> Result<Option<RawBson>> {
    match kind {
        Kind::First(input) | Kind::Last(input) | Kind::SelectedN { input, .. } => {
            Ok(Some(owned_or_null(input.evaluate(document, context)?)))
        }
        Kind::ConcatArrays(input) => {
            let value = input.evaluate(document, context)?;
            array("$concatArrays", &value)?;
            Ok(value.into_owned())
        }
        Kind::Push(input) | Kind::MergeObjects(input) => Ok(input.evaluate(document, context)?.into_owned()),
        _ => Ok(None),
    }
}

/// Evaluates the input of an accumulator that keeps its values in order. A null value has no place in the order of `$min` and its like.
fn keyed_value(kind: &Kind, document: &RawDocument, context: &Context) -> Result<Option<(Vec<u8>, RawBson)>> {
    let (input, direction) = match kind {
        Kind::TopN { sort, output, .. } => {
            return Ok(Some((sort.key(document)?, owned_or_null(output.evaluate(document, context)?))));
        }
        Kind::Minimum(input) | Kind::SelectedN { input, selection: Selection::Smallest, .. } => {
            (input, Direction::Ascending)
        }
        Kind::Maximum(input) | Kind::SelectedN { input, .. } => (input, Direction::Descending),
        _ => return Ok(None),
    };
    let value = input.evaluate(document, context)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let value = owned_or_null(value);
    let mut key = Vec::new();
    key::encode_directed_under(value.as_raw_bson_ref(), direction, context.collation(), &mut key);
    Ok(Some((key, value)))
}

fn entry_bytes(value: Option<&RawBson>) -> usize {
    ENTRY_BYTES + value.map_or(0, |value| bytes_of(value.as_raw_bson_ref()))
}

fn enter_value(values: &mut VecDeque<Option<RawBson>>, value: Option<RawBson>, trim: Trim, bytes: &mut usize) {
    if matches!(trim, Trim::First(n) if values.len() >= n) {
        return;
    }
    *bytes += entry_bytes(value.as_ref());
    values.push_back(value);
    if matches!(trim, Trim::Last(n) if values.len() > n)
        && let Some(gone) = values.pop_front()
    {
        *bytes -= entry_bytes(gone.as_ref());
    }
}

fn array_of<'v>(values: impl Iterator<Item = RawBsonRef<'v>>, context: &Context) -> Result<RawBson> {
    let mut array = RawArrayBuf::new();
    for item in values {
        context.step()?;
        value::push(&mut array, item)?;
    }
    Ok(RawBson::Array(array))
}

fn result_of_values(values: &VecDeque<Option<RawBson>>, trim: Trim, kind: &Kind, context: &Context) -> Result<RawBson> {
    let single = |value: Option<&Option<RawBson>>| value.cloned().flatten().unwrap_or(RawBson::Null);
    let known = || values.iter().flatten().map(RawBson::as_raw_bson_ref);
    match (kind, trim) {
        (Kind::First(_), _) => Ok(single(values.front())),
        (Kind::Last(_), _) => Ok(single(values.back())),
        (Kind::MergeObjects(_), _) => {
            let mut merged = RawDocumentBuf::new();
            for item in known() {
                context.step()?;
                merge_value(&mut merged, &Value::Ref(item))?;
            }
            Ok(RawBson::Document(merged))
        }
        (Kind::ConcatArrays(_), _) => {
            let mut joined = RawArrayBuf::new();
            for item in known().filter_map(RawBsonRef::as_array).flat_map(value::items) {
                context.step()?;
                value::push(&mut joined, item?)?;
            }
            Ok(RawBson::Array(joined))
        }
        (_, Trim::First(n)) => array_of(known().take(n), context),
        (_, Trim::Last(n)) => array_of(known().skip(values.len().saturating_sub(n)), context),
        (_, Trim::All) => array_of(known(), context),
    }
}

impl CountedSet {
    fn enter<'v>(
        &mut self,
        items: impl IntoIterator<Item = Result<RawBsonRef<'v>>>,
        context: &Context,
        removes: bool,
        bytes: &mut usize,
    ) -> Result<()> {
        let mut identities = Vec::new();
        for item in items {
            context.step()?;
            let item = item?;
            let identity = key::encoded_under(item, context.collation());
            if removes {
                *bytes += identity.len() + ENTRY_BYTES;
                identities.push(identity.clone());
            }
            let identity_bytes = identity.len();
            let (_, count) = self.values.entry(identity).or_insert_with(|| {
                *bytes += identity_bytes + ENTRY_BYTES + bytes_of(item);
                (value::to_owned(item), 0)
            });
            *count += 1;
        }
        if removes {
            self.arrived.push_back(identities);
        }
        Ok(())
    }

    fn leave(&mut self, bytes: &mut usize) {
        for identity in self.arrived.pop_front().into_iter().flatten() {
            *bytes -= identity.len() + ENTRY_BYTES;
            let Some((value, count)) = self.values.get_mut(&identity) else { continue };
            *count -= 1;
            if *count == 0 {
                *bytes -= identity.len() + ENTRY_BYTES + bytes_of(value.as_raw_bson_ref());
                self.values.remove(&identity);
            }
        }
    }
}

impl Ordered {
    fn enter(&mut self, keyed: Option<(Vec<u8>, RawBson)>, removes: bool, bytes: &mut usize) {
        let arrival = self.next;
        self.next += 1;
        if removes {
            self.arrived.push_back(keyed.as_ref().map(|(key, _)| key.clone()));
        }
        let Some((key, value)) = keyed else { return };
        *bytes += ordered_bytes(&key, &value);
        self.values.insert((key, arrival), value);
        if !removes && self.values.len() > self.n {
            let gone = if self.last { self.values.pop_first() } else { self.values.pop_last() };
            if let Some(((key, _), value)) = gone {
                *bytes -= ordered_bytes(&key, &value);
            }
        }
    }

    fn leave(&mut self, bytes: &mut usize) {
        let arrival = self.oldest;
        self.oldest += 1;
        if let Some(Some(key)) = self.arrived.pop_front()
            && let Some(((key, _), value)) = self.values.remove_entry(&(key, arrival))
        {
            *bytes -= ordered_bytes(&key, &value);
        }
    }

    fn result(&self, kind: &Kind, context: &Context) -> Result<RawBson> {
        // The last values are found from the end, so that the others are not passed.
        let mut values: Vec<RawBsonRef<'_>> = if self.last {
            self.values.values().rev().take(self.n).map(RawBson::as_raw_bson_ref).collect()
        } else {
            self.values.values().take(self.n).map(RawBson::as_raw_bson_ref).collect()
        };
        if self.last {
            values.reverse();
        }
        match kind {
            Kind::Minimum(_) | Kind::Maximum(_) | Kind::TopN { n: None, .. } => {
                Ok(values.first().map_or(RawBson::Null, |value| value::to_owned(*value)))
            }
            _ => array_of(values.into_iter(), context),
        }
    }
}

/// The bytes of a value, and of its key in the map and in the queue.
fn ordered_bytes(key: &[u8], value: &RawBson) -> usize {
    2 * (key.len() + ENTRY_BYTES) + bytes_of(value.as_raw_bson_ref())
}

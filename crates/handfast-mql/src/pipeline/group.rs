//! `$group`: documents with the same `_id` expression become one, in the order in which the groups first appear, as long as they fit into
//! memory.

use std::{
    collections::{HashMap, VecDeque},
    iter::Peekable,
};

use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr};

use super::{
    memory::{ENTRY_BYTES, StageMemory},
    operator::{Flow, Operator},
};
use crate::{
    accumulator::{Accumulator, State},
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{Expression, limits, value},
    key,
    sort::{Sorted, Sorter},
    spill::Spilled,
};

/// A compiled `$group`.
#[derive(Debug)]
pub struct Group {
    id: Expression,
    accumulations: Vec<Accumulation>,
}

/// A field of a group: its name, and the accumulator that computes its value.
#[derive(Debug)]
pub struct Accumulation {
    pub(super) name: String,
    pub(super) accumulator: Accumulator,
}

impl Group {
    /// Compiles `{_id: <expression>, <field>: {<accumulator>: ..}, ..}`.
    ///
    /// # Errors
    /// 15955 without `_id`, 40234 to 40238 for fields that are no accumulators, 15952 for unknown ones.
    pub fn compile(document: &RawDocument, options: &CompileOptions) -> Result<Group> {
        let mut id = None;
        let mut accumulations = Vec::new();
        for field in value::fields(document) {
            let (key, item) = field?;
            if key.as_str() == "_id" {
                if id.replace(Expression::compile(item, options)?).is_some() {
                    return Err(Error::new(Code(15_948), "a group's _id may only be specified once"));
                }
            } else {
                accumulations.push(accumulation(key.as_str(), item, options)?);
            }
        }
        let id = id.ok_or_else(|| Error::new(Code(15_955), "a group specification must include an _id"))?;
        Ok(Group { id, accumulations })
    }

    /// Creates a group by an expression, with fields compiled elsewhere.
    pub(super) fn new(id: Expression, accumulations: Vec<Accumulation>) -> Group {
        Group { id, accumulations }
    }

    pub(super) fn operator<'p>(&'p self, context: &'p Context) -> Box<dyn Operator + 'p> {
        Box::new(Grouping::new(self, context))
    }
}

/// Compiles `<field>: {<accumulator>: ..}`.
pub(super) fn accumulation(name: &str, item: RawBsonRef<'_>, options: &CompileOptions) -> Result<Accumulation> {
    if name.contains('.') {
        return Err(Error::new(Code(40_235), format!("The field name '{name}' cannot contain '.'")));
    }
    if name.starts_with('$') {
        return Err(Error::new(Code(40_236), format!("The field name '{name}' cannot be an operator name")));
    }
    let not_one = || Error::new(Code(40_234), format!("The field '{name}' must be an accumulator object"));
    let RawBsonRef::Document(document) = item else { return Err(not_one()) };
    let mut fields = value::fields(document);
    let (operator, argument) = fields.next().ok_or_else(not_one)??;
    if fields.next().is_some() {
        return Err(Error::new(Code(40_238), format!("The field '{name}' must specify one accumulator")));
    }
    if !operator.as_str().starts_with('$') {
        return Err(not_one());
    }
    let accumulator = Accumulator::compile(operator.as_str(), argument, options)?;
    Ok(Accumulation { name: name.to_owned(), accumulator })
}

/// Starts the accumulators of one group or bucket.
pub(super) fn start(accumulations: &[Accumulation], id: RawBsonRef<'_>, context: &Context) -> Result<Vec<State>> {
    let empty = RawDocumentBuf::new();
    let group = id.as_document().unwrap_or(&empty);
    accumulations.iter().map(|accumulation| accumulation.accumulator.start(group, context)).collect()
}

pub(super) fn bytes(states: &[State]) -> usize {
    states.iter().map(State::bytes).sum()
}

pub(super) fn add(
    accumulations: &[Accumulation],
    states: &mut [State],
    document: &RawDocument,
    context: &Context,
) -> Result<()> {
    for (accumulation, state) in accumulations.iter().zip(states) {
        state.add(&accumulation.accumulator, document, context)?;
    }
    Ok(())
}

/// Returns the document of a group: `_id` and the fields.
pub(super) fn finish(accumulations: &[Accumulation], states: Vec<State>, id: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    value::append(&mut document, "_id", id)?;
    for (accumulation, state) in accumulations.iter().zip(states) {
        let result = state.finish(&accumulation.accumulator);
        value::append(&mut document, &accumulation.name, result.as_raw_bson_ref())?;
    }
    limits::check_depth(RawBsonRef::Document(&document))?;
    Ok(document)
}

/// The bytes of one portion of output. A group that has not been returned yet counts as the bytes it was made of.
const PORTION_BYTES: usize = 1024 * 1024;

/// A running `$group`.
///
/// Once the groups exceed the memory of the stage, no group is added, and the documents of other groups go to a sort by group, which writes
/// to a file what it cannot hold. If the groups grow with their documents (`$push`), those of the groups in memory go there, too. At the end
/// each group is completed with its documents of the sort, one group after the other.
struct Grouping<'p> {
    stage: &'p Group,
    context: &'p Context,
    memory: StageMemory,
    /// The index of each group by the identity of its `_id`.
    positions: HashMap<Vec<u8>, usize>,
    /// The groups that fit into memory; none in the place of one that was returned.
    groups: VecDeque<Option<GroupState>>,
    /// The identity looked up last: a buffer used again.
    identity: Vec<u8>,
    rest: Rest,
}

/// A group: its `_id` and its accumulators.
struct GroupState {
    id: RawBson,
    accumulators: Vec<State>,
}

/// The documents that have arrived since the groups filled the memory.
enum Rest {
    None,
    Sorting(Sorter<Waiting>),
    /// The documents that have not been added yet, with the next one of them.
    Sorted(Peekable<Sorted<Waiting>>),
}

/// A document that waits for its group.
struct Waiting {
    identity: Vec<u8>,
    /// `{_id: ..}`.
    id: RawDocumentBuf,
    document: RawDocumentBuf,
}

impl Waiting {
    fn id(&self) -> RawBsonRef<'_> {
        self.id.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null)
    }
}

impl Spilled for Waiting {
    fn write(&self, out: &mut Vec<u8>) {
        self.identity.write(out);
        self.id.write(out);
        self.document.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let (identity, id) = (Vec::read(bytes)?, RawDocumentBuf::read(bytes)?);
        Ok(Waiting { identity, id, document: RawDocumentBuf::read(bytes)? })
    }
}

impl<'p> Grouping<'p> {
    fn new(stage: &'p Group, context: &'p Context) -> Self {
        Grouping {
            stage,
            context,
            memory: StageMemory::new("$group", context),
            positions: HashMap::new(),
            groups: VecDeque::new(),
            identity: Vec::new(),
            rest: Rest::None,
        }
    }

    /// Adds a document to its group, and returns whether there is memory for it; `None` if it was not added for lack of memory.
    fn add(&mut self, id: RawBsonRef<'_>, document: &RawDocument) -> Result<Option<Result<()>>> {
        let accumulations = &self.stage.accumulations;
        let position = match self.positions.get(self.identity.as_slice()) {
            Some(position) => *position,
            None => {
                let accumulators = start(accumulations, id, self.context)?;
                let reserved = self.memory.reserve(2 * self.identity.len() + ENTRY_BYTES + bytes(&accumulators));
                if reserved.is_err() {
                    return if self.context.allows_disk_use() { Ok(None) } else { reserved.map(|()| None) };
                }
                self.positions.insert(self.identity.clone(), self.groups.len());
                self.groups.push_back(Some(GroupState { id: value::to_owned(id), accumulators }));
                self.groups.len() - 1
            }
        };
        let Some(Some(GroupState { accumulators, .. })) = self.groups.get_mut(position) else {
            return Ok(Some(Ok(())));
        };
        let before = bytes(accumulators);
        add(accumulations, accumulators, document, self.context)?;
        self.memory.release(before);
        let reserved = self.memory.reserve(bytes(accumulators));
        if reserved.is_err() {
            self.memory.reserve_beyond(bytes(accumulators))?;
        }
        Ok(Some(reserved))
    }

    /// Adds a document to a group in memory, of which no document is in the sort; returns `false` if there is none.
    fn add_to_small(&mut self, document: &RawDocument) -> Result<bool> {
        let accumulations = &self.stage.accumulations;
        let are_small = accumulations.iter().all(|accumulation| accumulation.accumulator.keeps_one_value());
        let position = self.positions.get(self.identity.as_slice()).filter(|_| are_small);
        let Some(Some(group)) = position.and_then(|position| self.groups.get_mut(*position)) else { return Ok(false) };
        let before = bytes(&group.accumulators);
        add(accumulations, &mut group.accumulators, document, self.context)?;
        self.memory.release(before);
        self.memory.reserve_beyond(bytes(&group.accumulators))?;
        Ok(true)
    }

    /// Returns the next group that has documents in the sort; none at its end.
    fn next_of_sorted(&mut self) -> Result<Option<RawDocumentBuf>> {
        let Rest::Sorted(waiting) = &mut self.rest else { return Ok(None) };
        let Some(first) = waiting.next().transpose()? else { return Ok(None) };
        let known = self.positions.get(&first.identity).and_then(|position| self.groups.get_mut(*position)?.take());
        let mut group = match known {
            Some(group) => group,
            None => {
                let accumulators = start(&self.stage.accumulations, first.id(), self.context)?;
                GroupState { id: value::to_owned(first.id()), accumulators }
            }
        };
        // One group at a time, besides those that filled the memory of the stage.
        let mut memory = StageMemory::new("$group", self.context);
        let mut next = Some(first.document);
        while let Some(document) = next {
            self.context.step()?;
            add(&self.stage.accumulations, &mut group.accumulators, &document, self.context)?;
            memory.clear();
            memory.reserve(bytes(&group.accumulators))?;
            // An error is taken, too.
            let follows = |row: &Result<Waiting>| row.as_ref().map_or(true, |row| row.identity == first.identity);
            next = waiting.next_if(follows).transpose()?.map(|row| row.document);
        }
        self.finished(group).map(Some)
    }

    fn finished(&self, GroupState { id, accumulators }: GroupState) -> Result<RawDocumentBuf> {
        finish(&self.stage.accumulations, accumulators, id.as_raw_bson_ref())
    }

    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if let Some(group) = self.next_of_sorted()? {
            return Ok(Some(group));
        }
        self.positions.clear();
        while let Some(group) = self.groups.pop_front() {
            if let Some(group) = group {
                return self.finished(group).map(Some);
            }
        }
        Ok(None)
    }
}

impl Operator for Grouping<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let (stage, context) = (self.stage, self.context);
        let id = stage.id.evaluate(&document, context)?;
        // A missing value is in the group of null.
        let id = id.or_null();
        self.identity.clear();
        key::encode_under(id, self.context.collation(), &mut self.identity);
        if matches!(self.rest, Rest::None) {
            let added = self.add(id, &document)?;
            match added {
                Some(Ok(())) => return Ok(Flow::Continue),
                Some(Err(error)) if !self.context.allows_disk_use() => return Err(error),
                _ => self.rest = Rest::Sorting(Sorter::spilling(None, self.context)),
            }
            if added.is_some() {
                return Ok(Flow::Continue);
            }
        } else if self.add_to_small(&document)? {
            return Ok(Flow::Continue);
        }
        let Rest::Sorting(sorter) = &mut self.rest else { return Ok(Flow::Done) };
        let mut holder = RawDocumentBuf::new();
        holder.append(cstr!("_id"), id);
        let waiting = Waiting { identity: self.identity.clone(), id: holder, document };
        let bytes = waiting.identity.len() + waiting.id.as_bytes().len() + waiting.document.as_bytes().len();
        sorter.push(self.identity.clone(), waiting, bytes)?;
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        self.rest = match std::mem::replace(&mut self.rest, Rest::None) {
            Rest::Sorting(sorter) => Rest::Sorted(sorter.into_sorted()?.peekable()),
            rest => rest,
        };
        let mut bytes = 0;
        while let Some(group) = self.next()? {
            bytes += group.as_bytes().len();
            out.push(group);
            if bytes >= PORTION_BYTES {
                return Ok(Flow::More);
            }
        }
        self.memory.clear();
        Ok(Flow::Done)
    }
}

//! `$group`: documents with the same `_id` expression become one, in the order in which the groups first appear.

use std::collections::{HashMap, VecDeque};

use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

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
        Box::new(Grouping {
            stage: self,
            context,
            memory: StageMemory::new("$group", context),
            positions: HashMap::new(),
            groups: VecDeque::new(),
            identity: Vec::new(),
        })
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

struct Grouping<'p> {
    stage: &'p Group,
    context: &'p Context,
    memory: StageMemory,
    /// The index of each group by the identity of its `_id`.
    positions: HashMap<Vec<u8>, usize>,
    groups: VecDeque<(RawBson, Vec<State>)>,
    /// The identity looked up last: a buffer used again.
    identity: Vec<u8>,
}

impl Operator for Grouping<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let id = self.stage.id.evaluate(&document, self.context)?;
        // A missing value is in the group of null.
        let id = id.or_null();
        self.identity.clear();
        key::encode_under(id, self.context.collation(), &mut self.identity);
        let position = match self.positions.get(self.identity.as_slice()) {
            Some(position) => *position,
            None => {
                let states = start(&self.stage.accumulations, id, self.context)?;
                self.memory.reserve(2 * self.identity.len() + ENTRY_BYTES + bytes(&states))?;
                self.positions.insert(self.identity.clone(), self.groups.len());
                self.groups.push_back((value::to_owned(id), states));
                self.groups.len() - 1
            }
        };
        let Some((_, states)) = self.groups.get_mut(position) else { return Ok(Flow::Continue) };
        let before = bytes(states);
        add(&self.stage.accumulations, states, &document, self.context)?;
        self.memory.release(before);
        self.memory.reserve(bytes(states))?;
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        self.positions.clear();
        let mut bytes = 0;
        while let Some((id, states)) = self.groups.pop_front() {
            let group = finish(&self.stage.accumulations, states, id.as_raw_bson_ref())?;
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

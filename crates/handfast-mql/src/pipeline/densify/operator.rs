//! Runs `$densify`: sorts the input, and adds documents between and after those of the input.

use std::{collections::HashMap, mem};

use bson::{DateTime, RawBsonRef, RawDocumentBuf};

use super::{ADDED_DOCUMENTS_MAX, Bounds, Densify};
use crate::{
    context::Context,
    error::{Code, Error, Result},
    key,
    number::Number,
    pipeline::{
        memory::{ENTRY_BYTES, StageMemory},
        operator::{Flow, Operator},
        set_path::with_path,
    },
    sort::{Sorted, Sorter},
    spill::Spilled,
};

/// The bytes of one portion of output.
const PORTION_BYTES: usize = 1024 * 1024;

pub(super) struct Densifying<'p> {
    stage: &'p Densify,
    context: &'p Context,
    /// The memory of the sequences.
    memory: StageMemory,
    input: Input,
    sequences: Vec<Sequence>,
    /// The index of each sequence by the identity of its partition.
    positions: HashMap<Vec<u8>, usize>,
    /// The least and the greatest value of all documents.
    extent: Option<(Number, Number)>,
    /// A document that waits for those that are added before it, with the index of its sequence.
    waiting: Option<(usize, Number, RawDocumentBuf)>,
    /// The number of sequences that have been ended.
    ended: usize,
    added: usize,
}

enum Input {
    Reading(Sorter<Row>),
    Sorted(Sorted<Row>),
    Ended,
}

struct Row {
    /// The identity of the partition.
    partition: Vec<u8>,
    value: Option<Number>,
    document: RawDocumentBuf,
}

/// The values of one partition.
struct Sequence {
    /// The fields of the partition, which each added document gets.
    fields: RawDocumentBuf,
    /// The value that comes next; none if there is no later one.
    next: Option<Number>,
}

impl Spilled for Row {
    fn write(&self, out: &mut Vec<u8>) {
        self.partition.write(out);
        self.value.write(out);
        self.document.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let (partition, value) = (Vec::read(bytes)?, Option::read(bytes)?);
        Ok(Row { partition, value, document: RawDocumentBuf::read(bytes)? })
    }
}

impl<'p> Densifying<'p> {
    pub(super) fn new(stage: &'p Densify, context: &'p Context) -> Self {
        Densifying {
            stage,
            context,
            memory: StageMemory::new("$densify", context),
            input: Input::Reading(Sorter::spilling(None, context)),
            sequences: Vec::new(),
            positions: HashMap::new(),
            extent: None,
            waiting: None,
            ended: 0,
            added: 0,
        }
    }

    /// Returns the identity of a document's partition.
    fn identity(&self, document: &RawDocumentBuf) -> Result<Vec<u8>> {
        let mut identity = Vec::new();
        for field in &self.stage.partition {
            let value = field.value.evaluate(document, self.context)?;
            // A missing field is another partition than a null one, because the added documents lack it.
            identity.push(u8::from(!value.is_missing()));
            key::encode_under(value.or_null(), self.context.collation(), &mut identity);
        }
        Ok(identity)
    }

    /// Returns the index of the sequence of a partition; begins it at the first document.
    fn sequence(&mut self, partition: Vec<u8>, document: &RawDocumentBuf, value: Number) -> Result<usize> {
        if let Some(index) = self.positions.get(&partition) {
            return Ok(*index);
        }
        let mut fields = RawDocumentBuf::new();
        for field in &self.stage.partition {
            let value = field.value.evaluate(document, self.context)?;
            if let Some(value) = value.get() {
                fields = with_path(&fields, &field.path, Some(value))?;
            }
        }
        let first = match self.stage.bounds {
            Bounds::Full => self.extent.map_or(value, |(least, _)| least),
            Bounds::Partition => value,
            Bounds::Between { low, .. } => low,
        };
        self.memory.reserve(2 * partition.len() + fields.as_bytes().len() + ENTRY_BYTES)?;
        self.positions.insert(partition, self.sequences.len());
        self.sequences.push(Sequence { fields, next: Some(first) });
        Ok(self.sequences.len() - 1)
    }

    /// Returns the added document for the next value of a sequence, if `wanted` says that it is to be added.
    fn add(&mut self, index: usize, wanted: impl Fn(Number) -> bool) -> Result<Option<RawDocumentBuf>> {
        let Some(sequence) = self.sequences.get_mut(index) else { return Ok(None) };
        let Some(value) = sequence.next.filter(|next| wanted(*next)) else { return Ok(None) };
        self.context.step()?;
        self.added += 1;
        if self.added > ADDED_DOCUMENTS_MAX {
            let text = format!(
                "Generated {} documents in $densify, which is over the limit of {ADDED_DOCUMENTS_MAX}: choose a larger \
                 step or narrower bounds",
                self.added
            );
            return Err(Error::new(Code(5_897_900), text));
        }
        sequence.next = self.stage.after(value);
        let written = match (self.stage.unit, value) {
            (Some(_), Number::Long(millis)) => RawBsonRef::DateTime(DateTime::from_millis(millis)),
            _ => value.to_bson(),
        };
        with_path(&sequence.fields, &self.stage.field.path, Some(written)).map(Some)
    }

    /// Returns the next document; none at the end.
    fn next(&mut self, rows: &mut Sorted<Row>) -> Result<Option<RawDocumentBuf>> {
        if self.waiting.is_none()
            && let Some(Row { partition, value, document }) = rows.next().transpose()?
        {
            let Some(value) = value else { return Ok(Some(document)) };
            let index = self.sequence(partition, &document, value)?;
            self.waiting = Some((index, value, document));
        }
        if let Some((index, value, document)) = self.waiting.take() {
            let bounds = self.stage.bounds;
            let is_before = move |next: Number| {
                next.compare(&value).is_lt()
                    && !matches!(bounds, Bounds::Between { high, .. } if next.compare(&high).is_ge())
            };
            if let Some(added) = self.add(index, is_before)? {
                self.waiting = Some((index, value, document));
                return Ok(Some(added));
            }
            if let Some(sequence) = self.sequences.get_mut(index)
                && let Some(next) = sequence.next.filter(|next| next.compare(&value).is_eq())
            {
                sequence.next = self.stage.after(next);
            }
            return Ok(Some(document));
        }
        let extent = self.extent;
        let bounds = self.stage.bounds;
        let is_within = move |next: Number| match bounds {
            Bounds::Full => extent.is_some_and(|(_, greatest)| next.compare(&greatest).is_le()),
            Bounds::Partition => false,
            Bounds::Between { high, .. } => next.compare(&high).is_lt(),
        };
        while self.ended < self.sequences.len() {
            if let Some(added) = self.add(self.ended, is_within)? {
                return Ok(Some(added));
            }
            self.ended += 1;
        }
        Ok(None)
    }
}

impl Operator for Densifying<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let partition = self.identity(&document)?;
        let value = self.stage.axis(self.stage.field.value.evaluate(&document, self.context)?.or_null())?;
        let mut sort_key = if matches!(self.stage.bounds, Bounds::Partition) { partition.clone() } else { Vec::new() };
        key::encode(value.map_or(RawBsonRef::Null, Number::to_bson), &mut sort_key);
        if let Some(value) = value {
            let (least, greatest) = self.extent.unwrap_or((value, value));
            let least = if value.compare(&least).is_lt() { value } else { least };
            let greatest = if value.compare(&greatest).is_gt() { value } else { greatest };
            self.extent = Some((least, greatest));
        }
        let Input::Reading(sorter) = &mut self.input else { return Ok(Flow::Done) };
        let bytes = document.as_bytes().len() + partition.len();
        sorter.push(sort_key, Row { partition, value, document }, bytes)?;
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let mut rows = match mem::replace(&mut self.input, Input::Ended) {
            Input::Reading(sorter) => {
                if let Bounds::Between { low, .. } = self.stage.bounds
                    && self.stage.partition.is_empty()
                {
                    // The range is filled also if no document has the field.
                    self.sequence(Vec::new(), &RawDocumentBuf::new(), low)?;
                }
                sorter.into_sorted()?
            }
            Input::Sorted(rows) => rows,
            Input::Ended => return Ok(Flow::Done),
        };
        let mut bytes = 0;
        while bytes < PORTION_BYTES {
            let Some(document) = self.next(&mut rows)? else {
                self.memory.clear();
                return Ok(Flow::Done);
            };
            bytes += document.as_bytes().len();
            out.push(document);
        }
        self.input = Input::Sorted(rows);
        Ok(Flow::More)
    }
}

//! Runs `$setWindowFields`: sorts the input, and computes the fields of one partition after the other.

use std::{iter::Peekable, mem, ops::Range};

use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{
    Output, Partition, SetWindowFields,
    bounds::Window,
    function::Function,
    moving::{Covariance, Integral, Point, Smoothing, derivative},
    ordered::{Interpolation, RankKind, Ranked},
    result_name,
};
use crate::{
    accumulator::{
        Accumulator,
        window::{MergeQueue, WindowState},
    },
    context::Context,
    error::{Code, Error, Result},
    expression::{Expression, date::Unit, limits, value},
    filter::MatchPosition,
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

pub(super) struct Windowing<'p> {
    stage: &'p SetWindowFields,
    context: &'p Context,
    /// The memory of the current partition.
    memory: StageMemory,
    progress: Progress<'p>,
}

enum Progress<'p> {
    Reading(Sorter<Row>),
    Writing(Peekable<Sorted<Row>>, Option<PartitionCursor<'p>>),
    Ended,
}

/// A document with the identity of its partition.
struct Row {
    partition: Vec<u8>,
    document: RawDocumentBuf,
}

impl Spilled for Row {
    fn write(&self, out: &mut Vec<u8>) {
        self.partition.write(out);
        self.document.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        Ok(Row { partition: Vec::read(bytes)?, document: RawDocumentBuf::read(bytes)? })
    }
}

impl<'p> Windowing<'p> {
    pub(super) fn new(stage: &'p SetWindowFields, context: &'p Context) -> Self {
        let memory = StageMemory::new("$setWindowFields", context);
        Windowing { stage, context, memory, progress: Progress::Reading(Sorter::spilling(None, context)) }
    }

    /// Reads the documents of the next partition.
    fn next_partition(&mut self, rows: &mut Peekable<Sorted<Row>>) -> Result<Option<PartitionCursor<'p>>> {
        self.memory.clear();
        let Some(first) = rows.next().transpose()? else { return Ok(None) };
        let mut partition = Partition::default();
        let needs_positions = self.stage.outputs.iter().any(|output| output.function.needs_positions());
        let position = self.stage.position.as_ref().filter(|_| needs_positions);
        let mut next = Some(first.document);
        while let Some(document) = next {
            self.context.step()?;
            if let Some(position) = position {
                // The value is a part of the document.
                self.memory.reserve(document.as_bytes().len() + size_of::<RawBson>())?;
                let value = position.evaluate(&document, self.context)?.into_owned().unwrap_or(RawBson::Null);
                partition.positions.push(value);
            }
            self.memory.reserve(document.as_bytes().len() + ENTRY_BYTES)?;
            partition.documents.push(document);
            // An error is taken, too.
            let follows = |row: &Result<Row>| row.as_ref().map_or(true, |row| row.partition == first.partition);
            next = rows.next_if(follows).transpose()?.map(|row| row.document);
        }
        PartitionCursor::new(self.stage, partition, self.context).map(Some)
    }
}

impl Operator for Windowing<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let Progress::Reading(sorter) = &mut self.progress else { return Ok(Flow::Done) };
        let mut partition = Vec::new();
        if let Some(expression) = &self.stage.partition {
            let value = expression.evaluate(&document, self.context)?;
            if value.as_array().is_some() {
                let text = "An expression used to partition cannot evaluate to value of type array";
                return Err(Error::new(Code::TypeMismatch, text));
            }
            key::encode_under(value.or_null(), self.context.collation(), &mut partition);
        }
        let mut key = partition.clone();
        key.extend(self.stage.sort.key(&document)?);
        let bytes = document.as_bytes().len() + partition.len();
        sorter.push(key, Row { partition, document }, bytes)?;
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let (mut rows, mut cursor) = match mem::replace(&mut self.progress, Progress::Ended) {
            Progress::Reading(sorter) => (sorter.into_sorted()?.peekable(), None),
            Progress::Writing(rows, cursor) => (rows, cursor),
            Progress::Ended => return Ok(Flow::Done),
        };
        let mut bytes = 0;
        while bytes < PORTION_BYTES {
            if cursor.is_none() {
                cursor = self.next_partition(&mut rows)?;
            }
            let Some(partition) = &mut cursor else {
                self.memory.clear();
                return Ok(Flow::Done);
            };
            match partition.next(&mut self.memory)? {
                Some(document) => {
                    bytes += document.as_bytes().len();
                    out.push(document);
                }
                None => cursor = None,
            }
        }
        self.progress = Progress::Writing(rows, cursor);
        Ok(Flow::More)
    }
}

/// A position in a partition, with the states of the functions after the documents before it.
struct PartitionCursor<'p> {
    stage: &'p SetWindowFields,
    context: &'p Context,
    partition: Partition,
    index: usize,
    functions: Vec<FunctionState<'p>>,
}

impl<'p> PartitionCursor<'p> {
    fn new(stage: &'p SetWindowFields, partition: Partition, context: &'p Context) -> Result<Self> {
        let start = |output: &'p Output| FunctionState::new(&output.function, context);
        let functions = stage.outputs.iter().map(start).collect::<Result<_>>()?;
        Ok(PartitionCursor { stage, context, partition, index: 0, functions })
    }

    /// Returns the next document with its fields; none after the last one.
    fn next(&mut self, memory: &mut StageMemory) -> Result<Option<RawDocumentBuf>> {
        let Some(document) = self.partition.documents.get(self.index) else { return Ok(None) };
        let mut results = Vec::with_capacity(self.functions.len());
        for function in &mut self.functions {
            self.context.step()?;
            results.push(function.next(self.stage, &self.partition, self.index, memory, self.context)?);
        }
        self.index += 1;
        let document = with_results(self.stage, document, results, self.context)?;
        limits::check_depth(RawBsonRef::Document(&document))?;
        Ok(Some(document))
    }
}

fn with_results(
    stage: &SetWindowFields,
    document: &RawDocument,
    results: Vec<RawBson>,
    context: &Context,
) -> Result<RawDocumentBuf> {
    let Some(fields) = &stage.fields else {
        let mut document = document.to_owned();
        for (output, result) in stage.outputs.iter().zip(&results) {
            document = with_path(&document, &output.path, Some(result.as_raw_bson_ref()))?;
        }
        return Ok(document);
    };
    let mut variables = RawDocumentBuf::new();
    for (index, result) in results.iter().enumerate() {
        value::append(&mut variables, &result_name(index), result.as_raw_bson_ref())?;
    }
    fields.apply(document, MatchPosition::default(), &context.nested(variables))
}

/// The state of a function after some documents of a partition.
enum FunctionState<'p> {
    /// `held_bytes` are those that the stage has reserved for the content.
    Windowed {
        window: &'p Window,
        frame: Range<usize>,
        content: Content<'p>,
        held_bytes: usize,
    },
    MovingAverage {
        input: &'p Expression,
        smoothing: Smoothing,
        average: Option<Number>,
    },
    Rank(RankKind, Ranked),
    Shift {
        output: &'p Expression,
        by: i64,
        default: &'p RawBson,
    },
    LinearFill(&'p Expression, Interpolation),
    CarryForward(&'p Expression, RawBson),
}

/// The content of a window.
enum Content<'p> {
    Accumulate(&'p Accumulator, WindowState),
    Covariance { x: &'p Expression, y: &'p Expression, sample: bool, pairs: MergeQueue<Covariance> },
    Derivative { input: &'p Expression, unit: Option<Unit> },
    Integral { input: &'p Expression, unit: Option<Unit>, integral: Integral },
}

impl<'p> FunctionState<'p> {
    fn new(function: &'p Function, context: &Context) -> Result<Self> {
        let windowed = |window, content| FunctionState::Windowed { window, frame: 0..0, content, held_bytes: 0 };
        Ok(match function {
            Function::Accumulate { accumulator, window } => {
                let state = WindowState::new(accumulator, window.removes(), context)?;
                windowed(window, Content::Accumulate(accumulator, state))
            }
            Function::Covariance { x, y, sample, window } => {
                let pairs = MergeQueue::new(window.removes());
                windowed(window, Content::Covariance { x, y, sample: *sample, pairs })
            }
            Function::Derivative { input, unit, window } => {
                windowed(window, Content::Derivative { input, unit: *unit })
            }
            Function::Integral { input, unit, window } => {
                let integral = Integral::new(*unit, window.removes());
                windowed(window, Content::Integral { input, unit: *unit, integral })
            }
            Function::MovingAverage { input, smoothing } => {
                FunctionState::MovingAverage { input, smoothing: *smoothing, average: None }
            }
            Function::Rank(kind) => FunctionState::Rank(*kind, Ranked::default()),
            Function::Shift { output, by, default } => FunctionState::Shift { output, by: *by, default },
            Function::LinearFill(input) => FunctionState::LinearFill(input, Interpolation::default()),
            Function::CarryForward(input) => FunctionState::CarryForward(input, RawBson::Null),
        })
    }

    /// Returns the result for the document at `index`, which is the one after that of the last call.
    fn next(
        &mut self,
        stage: &SetWindowFields,
        partition: &Partition,
        index: usize,
        memory: &mut StageMemory,
        context: &Context,
    ) -> Result<RawBson> {
        let Some(document) = partition.documents.get(index) else { return Ok(RawBson::Null) };
        match self {
            FunctionState::Windowed { window, frame, content, held_bytes } => {
                let next = window.frame(partition, index, frame, context)?;
                for entering in frame.end..next.end {
                    context.step()?;
                    content.enter(partition, entering, window.removes(), context)?;
                    // All documents may enter at once, so that each is counted as it enters.
                    memory.reserve(content.bytes().saturating_sub(*held_bytes))?;
                    *held_bytes = content.bytes().max(*held_bytes);
                }
                for _ in frame.start..next.start {
                    context.step()?;
                    content.leave();
                }
                memory.release(held_bytes.saturating_sub(content.bytes()));
                *held_bytes = content.bytes();
                *frame = next;
                content.result(partition, frame, context)
            }
            FunctionState::MovingAverage { input, smoothing, average } => {
                if let Some(number) = input.evaluate(document, context)?.get().and_then(Number::of) {
                    *average = Some(smoothing.next(*average, number));
                }
                Ok(average.map_or(RawBson::Null, RawBson::from))
            }
            FunctionState::Rank(kind, ranked) => ranked.next(*kind, partition, index, &stage.sort),
            FunctionState::Shift { output, by, default } => {
                let place = (index as i64).checked_add(*by).and_then(|place| usize::try_from(place).ok());
                match place.and_then(|place| partition.documents.get(place)) {
                    Some(document) => Ok(output.evaluate(document, context)?.into_owned().unwrap_or(RawBson::Null)),
                    None => Ok((*default).clone()),
                }
            }
            FunctionState::LinearFill(input, interpolation) => interpolation.next(input, partition, index, context),
            FunctionState::CarryForward(input, last) => {
                let value = input.evaluate(document, context)?;
                if !value.is_nullish() {
                    *last = value.into_owned().unwrap_or(RawBson::Null);
                }
                Ok(last.clone())
            }
        }
    }
}

/// Returns the point of a document for a derivative or an integral.
fn point(
    name: &str,
    input: &Expression,
    unit: Option<Unit>,
    partition: &Partition,
    index: usize,
    context: &Context,
) -> Result<Option<Point>> {
    let (Some(document), Some(position)) = (partition.documents.get(index), partition.positions.get(index)) else {
        return Ok(None);
    };
    let value = input.evaluate(document, context)?;
    Point::of(name, position.as_raw_bson_ref(), value.or_null(), unit)
}

impl Content<'_> {
    fn bytes(&self) -> usize {
        match self {
            Content::Accumulate(_, state) => state.bytes(),
            Content::Covariance { pairs, .. } => pairs.bytes(),
            Content::Derivative { .. } => 0,
            Content::Integral { integral, .. } => integral.bytes(),
        }
    }

    fn enter(&mut self, partition: &Partition, index: usize, removes: bool, context: &Context) -> Result<()> {
        let Some(document) = partition.documents.get(index) else { return Ok(()) };
        match self {
            Content::Accumulate(accumulator, state) => state.enter(accumulator, document, context),
            Content::Covariance { x, y, pairs, .. } => {
                let number = |input: &Expression| -> Result<Option<Number>> {
                    Ok(input.evaluate(document, context)?.get().and_then(Number::of))
                };
                let pair = number(x)?.zip(number(y)?).map(|(x, y)| Covariance::of(x, y));
                pairs.enter(pair.unwrap_or_default());
                Ok(())
            }
            Content::Derivative { .. } => Ok(()),
            Content::Integral { input, unit, integral } => {
                integral.enter(point("$integral", input, *unit, partition, index, context)?, removes);
                Ok(())
            }
        }
    }

    fn leave(&mut self) {
        match self {
            Content::Accumulate(_, state) => state.leave(),
            Content::Covariance { pairs, .. } => pairs.leave(),
            Content::Derivative { .. } => {}
            Content::Integral { integral, .. } => integral.leave(),
        }
    }

    fn result(&self, partition: &Partition, frame: &Range<usize>, context: &Context) -> Result<RawBson> {
        match self {
            Content::Accumulate(accumulator, state) => state.result(accumulator, context),
            Content::Covariance { pairs, sample, .. } => Ok(pairs.total().result(*sample)),
            Content::Derivative { input, unit } => {
                if frame.len() < 2 {
                    return Ok(RawBson::Null);
                }
                let at = |index| point("$derivative", input, *unit, partition, index, context);
                Ok(derivative(at(frame.start)?, at(frame.end - 1)?, *unit))
            }
            Content::Integral { integral, .. } => Ok(integral.result()),
        }
    }
}

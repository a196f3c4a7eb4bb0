//! The document while it is being changed: a tree that is opened only along the paths of the update.
//!
//! ```text
//! {_id: 1, a: {b: 1, c: 2}, d: [..]}   $inc a.b
//!
//! Container [ Kept(_id), Changed(a, Open(Container [ Changed(b, Owned(2)), Kept(c) ])), Kept(d) ]
//! ```
//!
//! A kept value is a byte range of the old document, which is copied without being parsed.
//!
//! The first searches for fields compare one name after the other. After many searches in a document, its names are indexed. A removed
//! field leaves a gap, so that positions stay valid.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bson::RawDocument;
use bson::spec::ElementType;

use crate::element::{Element, OwnedElement, elements};
use crate::raw_writer::{IndexName, RawWriter};
use crate::{Code, Error, Result};

use super::growth::{GrowthLimit, array_bytes, field_bytes, null_bytes};
use super::path::FieldName;

/// The most `null`s that an update may put before a new array element, as MongoDB documents it.
const BACKFILL_MAX: usize = 1_500_000;

/// The bytes of a document without fields: a length and a NUL.
const EMPTY_BYTES: usize = 5;

/// The searches in one document before its names are indexed: building the index costs as much as several searches.
const SEARCHES_MAX: usize = 16;

/// A document or array that is opened.
#[derive(Debug)]
pub(super) struct Container<'a> {
    kind: ElementType,
    slots: Vec<Slot<'a>>,
    searches: usize,
    /// The position of the first field of each name.
    names: Option<BTreeMap<Cow<'a, [u8]>, usize>>,
}
#[derive(Debug)]
enum Slot<'a> {
    /// An existing element: of the old document, or (in arrays only) one that the update inserted.
    Kept(Element<'a>),
    /// A value that is new, replaced, or opened to be changed inside.
    Changed(Box<Changed<'a>>),
    /// A field that was taken out.
    Gone,
}

#[derive(Debug)]
struct Changed<'a> {
    /// The field's name. Arrays do not use it.
    name: Cow<'a, str>,
    value: Value<'a>,
}
#[derive(Debug)]
pub(super) enum Value<'a> {
    /// A value of the document or of the update.
    Borrowed(Element<'a>),
    Owned(OwnedElement),
    /// A document or array that is opened to be changed inside.
    Open(Container<'a>),
}

impl<'a> Container<'a> {
    pub(super) fn document(document: &'a RawDocument) -> Result<Self> {
        Self::open(ElementType::EmbeddedDocument, document)
    }
    pub(super) fn empty_document() -> Self {
        Self::of(ElementType::EmbeddedDocument, Vec::new())
    }
    pub(super) fn array(values: impl IntoIterator<Item = Value<'a>>) -> Self {
        let slots = values.into_iter().map(Slot::item).collect();
        Self::of(ElementType::Array, slots)
    }

    fn open(kind: ElementType, document: &'a RawDocument) -> Result<Self> {
        // An estimate, so that most documents take one allocation.
        let mut slots = Vec::with_capacity((document.as_bytes().len() / 16).clamp(4, 64));
        for element in elements(document) {
            slots.push(Slot::Kept(element?));
        }
        Ok(Self::of(kind, slots))
    }

    fn of(kind: ElementType, slots: Vec<Slot<'a>>) -> Self {
        Container { kind, slots, searches: 0, names: None }
    }

    pub(super) fn is_array(&self) -> bool {
        self.kind == ElementType::Array
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns where the field is; in an array, the element of that index.
    pub(super) fn locate(&mut self, name: &FieldName) -> Option<usize> {
        if self.is_array() {
            name.index().filter(|&index| index < self.slots.len())
        } else {
            self.position(name.as_str())
        }
    }
    pub(super) fn position(&mut self, name: &str) -> Option<usize> {
        if let Some(names) = &self.names {
            return names.get(name.as_bytes()).copied();
        }
        self.searches += 1;
        if self.searches > SEARCHES_MAX {
            return self.names.insert(index_names(&self.slots)).get(name.as_bytes()).copied();
        }
        self.slots.iter().position(|slot| slot.name() == Some(name.as_bytes()))
    }

    /// Returns the value there; none if it is opened.
    pub(super) fn element(&self, at: usize) -> Option<Element<'_>> {
        match self.slots.get(at)? {
            Slot::Kept(element) => Some(*element),
            Slot::Changed(changed) => match &changed.value {
                Value::Borrowed(element) => Some(*element),
                Value::Owned(value) => Some(value.element()),
                Value::Open(_) => None,
            },
            Slot::Gone => None,
        }
    }

    /// Returns the value there, if it is a kept element: in a document, it is then unchanged.
    pub(super) fn kept(&self, at: usize) -> Option<Element<'a>> {
        match self.slots.get(at)? {
            Slot::Kept(element) => Some(*element),
            Slot::Changed(_) | Slot::Gone => None,
        }
    }

    /// Calls a function with the value at an index, including one that is opened.
    ///
    /// # Errors
    /// Returns the errors of [`Container::write`].
    pub(super) fn with_value<T>(
        &self,
        at: usize,
        growth: &GrowthLimit,
        look: impl FnOnce(Element<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(element) = self.element(at) {
            return look(element);
        }
        let mut bytes = Vec::new();
        let mut writer = RawWriter::new(&mut bytes);
        if let Some(Slot::Changed(changed)) = self.slots.get(at) {
            changed.value.write("", &mut writer, growth)?;
        }
        writer.finish()?;
        match elements(RawDocument::from_bytes(&bytes)?).next() {
            Some(element) => look(element?),
            None => Err(Error::new(Code::InternalError, "an update looked for a value that is not there")),
        }
    }

    /// Opens the document or array at an index; returns `None` for a scalar.
    pub(super) fn child(&mut self, at: usize) -> Result<Option<&mut Container<'a>>> {
        let Some(slot) = self.slots.get_mut(at) else { return Ok(None) };
        if let Slot::Kept(element) = *slot {
            let (kind, inner) = match (element.as_document()?, element.as_array()?) {
                (Some(document), _) => (ElementType::EmbeddedDocument, document),
                (_, Some(array)) => (ElementType::Array, array),
                _ => return Ok(None),
            };
            let value = Value::Open(Container::open(kind, inner)?);
            *slot = Slot::Changed(Box::new(Changed { name: Cow::Borrowed(element.name()), value }));
        }
        match slot {
            Slot::Changed(changed) => match &mut changed.value {
                Value::Open(container) => Ok(Some(container)),
                _ => Ok(None),
            },
            Slot::Kept(_) | Slot::Gone => Ok(None),
        }
    }
    pub(super) fn replace(&mut self, at: usize, value: Value<'a>) {
        if let Some(slot) = self.slots.get_mut(at) {
            let name = slot.take_name();
            *slot = Slot::Changed(Box::new(Changed { name, value }));
        }
    }

    /// Restores the old element after a change without effect.
    pub(super) fn restore(&mut self, at: usize, element: Element<'a>) {
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Slot::Kept(element);
        }
    }

    /// Adds a field at the end of a document, or an element at an index of an array, with `null`s before it if need be.
    ///
    /// # Errors
    /// `CannotBackfillArray` (34) if it needs too many; `PathNotViable` (28) if the name is no index: the caller, who
    /// knows the array's name, has checked; 17419 or 17420 beyond the limit of growth.
    pub(super) fn add(&mut self, name: &FieldName, value: Value<'a>, growth: &mut GrowthLimit) -> Result<()> {
        if !self.is_array() {
            growth.reserve(field_bytes(name.as_str(), value.bytes()))?;
            if let Some(names) = &mut self.names {
                names.insert(Cow::Owned(name.as_str().as_bytes().to_owned()), self.slots.len());
            }
            self.slots.push(Slot::new(name.as_str().to_owned(), value));
            return Ok(());
        }
        let index = name.index().ok_or_else(|| {
            Error::new(Code::PathNotViable, format!("Cannot create field '{}' in an array", name.as_str()))
        })?;
        if index.saturating_sub(self.slots.len()) > BACKFILL_MAX {
            let message = format!("can't backfill more than {BACKFILL_MAX} elements");
            return Err(Error::new(Code::CannotBackfillArray, message));
        }
        growth.reserve(null_bytes(index.saturating_sub(self.slots.len()) + 1).saturating_add(value.bytes()))?;
        if self.slots.len() < index {
            // All nulls share one allocation.
            let null = Element::null()?;
            self.slots.resize_with(index, || Slot::Kept(null));
        }
        self.slots.push(Slot::item(value));
        Ok(())
    }

    /// Inserts values into an array before the element at an index.
    pub(super) fn insert(&mut self, at: usize, values: impl IntoIterator<Item = Value<'a>>) {
        let at = at.min(self.slots.len());
        self.slots.splice(at..at, values.into_iter().map(Slot::item));
    }

    /// Keeps the elements of a range of an array. Returns the least bytes of the others.
    pub(super) fn keep_range(&mut self, range: std::ops::Range<usize>) -> usize {
        let gone = (0..range.start).chain(range.end..self.slots.len());
        let bytes = array_bytes(gone.filter_map(|at| self.element(at)));
        self.slots.truncate(range.end);
        self.slots.drain(..range.start.min(self.slots.len()));
        bytes
    }

    /// Keeps the elements of an array for which `keep` is true, and tells whether any was removed.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Element<'_>) -> Result<bool>) -> Result<bool> {
        let mut kept = Vec::with_capacity(self.slots.len());
        for at in 0..self.slots.len() {
            kept.push(match self.element(at) {
                Some(element) => keep(element)?,
                None => true,
            });
        }
        let before = self.slots.len();
        let mut kept = kept.into_iter();
        self.slots.retain(|_| kept.next().unwrap_or(true));
        Ok(self.slots.len() < before)
    }

    /// Reorders the elements of an array; `order` has each of their indexes once.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        let mut slots: Vec<Option<Slot<'a>>> = std::mem::take(&mut self.slots).into_iter().map(Some).collect();
        self.slots = order.iter().filter_map(|&at| slots.get_mut(at).and_then(Option::take)).collect();
    }
    pub(super) fn take(&mut self, at: usize) -> Option<Value<'a>> {
        let taken = std::mem::replace(self.slots.get_mut(at)?, Slot::Gone);
        if let (Some(names), Some(name)) = (&mut self.names, taken.name()) {
            names.remove(name);
        }
        match taken {
            Slot::Kept(element) => Some(Value::Borrowed(element)),
            Slot::Changed(changed) => Some(changed.value),
            Slot::Gone => None,
        }
    }

    /// Writes all fields or elements. Adjacent kept ones are copied together.
    ///
    /// # Errors
    /// 17419 or 17420 as soon as the written bytes exceed the size limit of a document.
    fn write(&self, writer: &mut RawWriter<'_>, growth: &GrowthLimit) -> Result<()> {
        let mut index_name = IndexName::new();
        let mut run: Option<Element<'a>> = None;
        for (index, slot) in self.slots.iter().enumerate() {
            if matches!(slot, Slot::Gone) {
                continue;
            }
            let array_name = self.is_array().then(|| index_name.text(index));
            let kept = match slot {
                Slot::Kept(element) if array_name.is_none_or(|name| name.as_bytes() == element.name_bytes()) => {
                    *element
                }
                _ => {
                    run.take().into_iter().for_each(|run| writer.copy(run));
                    match slot {
                        Slot::Kept(element) => writer.copy_as(array_name.unwrap_or_default(), *element),
                        Slot::Changed(changed) => {
                            changed.value.write(array_name.unwrap_or(&changed.name), writer, growth)?;
                        }
                        Slot::Gone => {}
                    }
                    growth.check_written(writer.buffered())?;
                    continue;
                }
            };
            run = match run {
                None => Some(kept),
                Some(run) => run.joined(kept).or_else(|| {
                    writer.copy(run);
                    Some(kept)
                }),
            };
        }
        run.into_iter().for_each(|run| writer.copy(run));
        Ok(())
    }

    /// Returns the bytes of the whole document.
    ///
    /// # Errors
    /// Returns the errors of [`Container::write`].
    pub(super) fn into_bytes(self, capacity: usize, growth: &GrowthLimit) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(capacity);
        let mut writer = RawWriter::new(&mut bytes);
        self.write(&mut writer, growth)?;
        writer.finish()?;
        Ok(bytes)
    }
}

fn index_names<'a>(slots: &[Slot<'a>]) -> BTreeMap<Cow<'a, [u8]>, usize> {
    // The order is reversed, so that the first of several fields with one name is kept.
    let named = slots.iter().enumerate().rev().filter_map(|(at, slot)| {
        let name = match slot {
            Slot::Kept(element) => Cow::Borrowed(element.name_bytes()),
            Slot::Changed(changed) => Cow::Owned(changed.name.as_bytes().to_owned()),
            Slot::Gone => return None,
        };
        Some((name, at))
    });
    named.collect()
}

impl<'a> Slot<'a> {
    /// Creates an element of an array. One that exists in a document takes no memory but the slot.
    fn item(value: Value<'a>) -> Self {
        match value {
            Value::Borrowed(element) => Slot::Kept(element),
            other => Slot::new("", other),
        }
    }

    fn new(name: impl Into<Cow<'a, str>>, value: Value<'a>) -> Self {
        Slot::Changed(Box::new(Changed { name: name.into(), value }))
    }

    fn name(&self) -> Option<&[u8]> {
        match self {
            Slot::Kept(element) => Some(element.name_bytes()),
            Slot::Changed(changed) => Some(changed.name.as_bytes()),
            Slot::Gone => None,
        }
    }

    fn take_name(&mut self) -> Cow<'a, str> {
        match self {
            Slot::Kept(element) => Cow::Borrowed(element.name()),
            Slot::Changed(changed) => std::mem::take(&mut changed.name),
            Slot::Gone => Cow::Borrowed(""),
        }
    }
}

impl Value<'_> {
    /// Returns the value, unless it is opened.
    pub(super) fn element(&self) -> Option<Element<'_>> {
        match self {
            Value::Borrowed(element) => Some(*element),
            Value::Owned(value) => Some(value.element()),
            Value::Open(_) => None,
        }
    }
    fn bytes(&self) -> usize {
        self.element().map_or(EMPTY_BYTES, |element| element.payload().len())
    }

    fn write(&self, name: &str, writer: &mut RawWriter<'_>, growth: &GrowthLimit) -> Result<()> {
        match self {
            Value::Borrowed(element) => writer.copy_as(name, *element),
            Value::Owned(value) => writer.copy_as(name, value.element()),
            Value::Open(container) => {
                let mut nested = writer.nested(container.kind, name);
                container.write(&mut nested, growth)?;
                nested.finish()?;
            }
        }
        Ok(())
    }
}

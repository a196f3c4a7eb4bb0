//! Compiles `{$set: {a: 1}, ..}` to operators at the leaves of one tree.

use bson::{RawBsonRef, RawDocument};

use crate::element::{Element, elements};
use crate::{Code, CompileOptions, Error, Result, bson_type, text};

use super::array_filter::{ArrayFilter, ArrayFilters};
use super::operator::{self, Action, Operator};
use super::path::UpdatePath;
use super::plan::{self, Children, Leaf};
#[derive(Debug, Default)]
pub(super) struct Operators {
    pub(super) root: Children,
    pub(super) list: Vec<Operator>,
    pub(super) renames: Vec<UpdatePath>,
    pub(super) filters: Vec<ArrayFilter>,
    /// The depth that the operators' values can reach in a document.
    pub(super) nesting: usize,
    /// The names of the operators, for properties of the whole update.
    pub(super) names: Vec<String>,
}

impl Operators {
    /// Compiles an update of operators.
    ///
    /// # Errors
    /// Returns `FailedToParse` (9) for an unknown operator or one whose operand is no document; the errors of paths, operands,
    /// array filters and conflicts.
    pub(super) fn compile(update: &RawDocument, mut filters: ArrayFilters, options: &CompileOptions) -> Result<Self> {
        let mut operators = Operators::default();
        for modifier in elements(update) {
            let modifier = modifier?;
            operators.modifier(modifier, &mut filters, options)?;
        }
        operators.filters = filters.finish(update)?;
        Ok(operators)
    }

    /// Compiles one operator with all its fields.
    fn modifier(&mut self, modifier: Element<'_>, filters: &mut ArrayFilters, options: &CompileOptions) -> Result<()> {
        let name = modifier.name();
        if !KNOWN.contains(&name) {
            let message = format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an \
                 array"
            );
            return Err(Error::new(Code::FailedToParse, message));
        }
        let Some(fields) = modifier.as_document()? else {
            let value = modifier.value()?;
            let message = format!(
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: ...}}}} \
                 not {{{}}}",
                bson_type::type_name(value),
                text::field(name, value)
            );
            return Err(Error::new(Code::FailedToParse, message));
        };
        for field in elements(fields) {
            let field = field?;
            let path = UpdatePath::parse(field.name())?;
            if name == "$rename" {
                self.rename(path, field.value()?, filters)?;
            } else if let Some(action) = operator::compile(name, &path, field, options)? {
                self.add(path, action, filters)?;
            }
        }
        self.names.push(name.to_owned());
        Ok(())
    }
    pub(super) fn add(&mut self, path: UpdatePath, action: Action, filters: &mut ArrayFilters) -> Result<()> {
        let leaf = Leaf { operator: self.list.len() };
        plan::insert(&mut self.root, &path, leaf, |identifier| filters.position(identifier, &path.text))?;
        self.nesting = self.nesting.max(path.components.len() - 1 + action.nesting());
        self.list.push(Operator { path, action });
        Ok(())
    }

    fn rename(&mut self, from: UpdatePath, to: RawBsonRef<'_>, filters: &mut ArrayFilters) -> Result<()> {
        let bad = |message: String| Err(Error::new(Code::BadValue, message));
        let field = || text::field(&from.text, to);
        let RawBsonRef::String(target) = to else {
            return bad(format!("The 'to' field for $rename must be a string: {}", field()));
        };
        if target.contains('\0') {
            return bad("The 'to' field for $rename cannot contain an embedded null byte".to_owned());
        }
        let target = UpdatePath::parse(target)?;
        if from.components == target.components {
            return bad(format!("The source and target field for $rename must differ: {}", field()));
        }
        if from.overlaps(&target) {
            return bad(format!("The source and target field for $rename must not be on the same path: {}", field()));
        }
        if !from.is_static() {
            return bad(format!("The source field for $rename may not be dynamic: {}", from.text));
        }
        if !target.is_static() {
            return bad(format!("The destination field for $rename may not be dynamic: {}", target.text));
        }
        self.add(from.clone(), Action::RenameFrom, filters)?;
        self.add(target, Action::RenameTo(self.renames.len()), filters)?;
        self.renames.push(from);
        Ok(())
    }
}
pub(super) const KNOWN: [&str; 15] = [
    "$set",
    "$setOnInsert",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$currentDate",
    "$push",
    "$pull",
    "$pullAll",
    "$pop",
    "$addToSet",
    "$bit",
];

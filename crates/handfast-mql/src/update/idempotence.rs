//! Decides which updates may be sent twice.

use super::operator::Action;
use super::path::Component;
use super::{Kind, Update};

impl Update {
    /// Tells whether applying the update twice in a row leaves the same document as applying it once, so that a caller
    /// that does not know whether the first attempt was applied may try again.
    ///
    /// | operator | | why |
    /// | --- | --- | --- |
    /// | replacement | yes | the document does not depend on the one before |
    /// | `$set` `$unset` `$setOnInsert` | yes | the value does not depend on the one before |
    /// | `$min` `$max` `$addToSet` `$pull` `$pullAll` | yes | the second time there is nothing left to do |
    /// | `$rename` | yes | the second time there is no source |
    /// | `$bit` with `and`, `or` | yes | each bit is set, cleared or kept |
    /// | `$bit` with `xor` | no | the second time turns the bits back |
    /// | `$inc` `$mul` `$push` `$pop` | no | each time counts |
    /// | `$currentDate` | no | each time is another |
    /// | pipeline | no | an expression may read the field that it sets |
    /// | any, with `$` | no | the filter may match another element after the first time |
    /// | several, with `$[name]` | no | one may change what the filter of another selects |
    ///
    /// Other writers may change the document between the two attempts: the filter must exclude that (by a version or a state).
    pub fn is_idempotent(&self) -> bool {
        let operators = match &self.kind {
            Kind::Replacement(_) => return true,
            Kind::Pipeline(_) => return false,
            Kind::Operators(operators) => operators,
        };
        let mut components = operators.list.iter().flat_map(|operator| &operator.path.components);
        if components.clone().any(|component| *component == Component::Positional) {
            return false;
        }
        if components.any(|component| matches!(component, Component::Filtered(_))) && operators.list.len() > 1 {
            return false;
        }
        operators.list.iter().all(|operator| match &operator.action {
            Action::Set(_)
            | Action::SetOnInsert(_)
            | Action::Unset
            | Action::Extreme(_)
            | Action::AddToSet(_)
            | Action::Pull(_)
            | Action::PullAll(_)
            | Action::RenameFrom
            | Action::RenameTo(_) => true,
            Action::Bit(bit) => bit.is_idempotent(),
            Action::Arithmetic(_) | Action::Push(_) | Action::Pop(_) | Action::CurrentDate(_) => false,
        })
    }
}

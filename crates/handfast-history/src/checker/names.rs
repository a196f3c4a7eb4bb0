//! Numbers the keys and values of a history.

use std::collections::HashMap;

use crate::event::Name;

/// A table of names and their numbers, in order of appearance.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    numbers: HashMap<Name, u32>,
    names: Vec<Name>,
}

impl NameTable {
    /// Returns the number of a name; adds the name if it is new. More than four billion names would not fit into memory.
    pub(super) fn number(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }

    pub(super) fn name(&self, number: u32) -> &Name {
        &self.names[number as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

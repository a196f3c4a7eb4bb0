//! Keys and values as small numbers.

use std::collections::HashMap;

use crate::event::Name;

/// Names and their numbers, in the order in which they came up.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Name, u32>,
    names: Vec<Name>,
}

impl Names {
    /// The number of a name, a fresh one if it has none. More than four billion names would not fit the memory.
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

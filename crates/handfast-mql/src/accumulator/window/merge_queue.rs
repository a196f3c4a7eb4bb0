//! The total of a window that moves forward, without subtraction: a queue of two stacks.
//!
//! Subtracting the value that leaves a window loses digits (`1e100 + 1 - 1e100`) and cannot forget an infinity. So each
//! total is made of merges only. New values are added to the back and to its running total; the first value to leave an empty front turns
//! the back into suffix totals, one for each value:
//!
//! ```text
//! enter a, b, c      front: -                back: a b c   total of back: abc
//! leave a            front: bc, c            back: -       the window is bc
//! enter d            front: bc, c            back: d       the window is bc + d
//! ```
//!
//! Each value is moved once, so n steps of a window cost n merges, whatever its width.

/// A total that can be merged with the total of later values. The default is that of no values.
pub(crate) trait Merge: Clone + Default {
    /// Adds the total of the values that come after those of this total.
    fn merge(&mut self, later: &Self);
}

/// A queue of values with the total of all of them.
#[derive(Debug)]
pub(crate) struct MergeQueue<M> {
    /// A value may leave, so that the single values have to be kept.
    removes: bool,
    /// The totals from each older value to the end of the front; the oldest value is last.
    front: Vec<M>,
    back: Vec<M>,
    back_total: M,
}

impl<M: Merge> MergeQueue<M> {
    /// Creates an empty window. If no value will leave it (`removes` is false), it keeps the total only.
    pub(crate) fn new(removes: bool) -> Self {
        MergeQueue { removes, front: Vec::new(), back: Vec::new(), back_total: M::default() }
    }

    pub(crate) fn enter(&mut self, value: M) {
        self.back_total.merge(&value);
        if self.removes {
            self.back.push(value);
        }
    }

    /// Removes the oldest value.
    pub(crate) fn leave(&mut self) {
        if self.front.is_empty() {
            let mut total = M::default();
            for mut value in self.back.drain(..).rev() {
                value.merge(&total);
                total = value.clone();
                self.front.push(value);
            }
            self.back_total = M::default();
        }
        self.front.pop();
    }

    /// Returns the total of the values in the window.
    pub(crate) fn total(&self) -> M {
        let mut total = self.front.last().cloned().unwrap_or_default();
        total.merge(&self.back_total);
        total
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.front.len() + self.back.len()) * size_of::<M>()
    }
}

//! The findings of a verification: all are counted, and the first 1000 are kept.

use std::ops::Deref;

/// Findings kept; more are only counted.
const KEPT_MAX: usize = 1000;

/// The findings of a verification, as a slice of the first 1000, with the count of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings<F> {
    kept: Vec<F>,
    count: u64,
}

impl<F> Findings<F> {
    /// Returns the number of all findings, including those that were not kept.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts a finding, and keeps it if there is room.
    pub(crate) fn keep(&mut self, finding: F) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        }
    }

    /// Adds the findings of another verification.
    pub(crate) fn join(&mut self, others: Findings<F>) {
        self.count += others.count;
        self.kept.extend(others.kept.into_iter().take(KEPT_MAX.saturating_sub(self.kept.len())));
    }
}

impl<F> Default for Findings<F> {
    fn default() -> Self {
        Findings { kept: Vec::new(), count: 0 }
    }
}

impl<F> Deref for Findings<F> {
    type Target = [F];

    fn deref(&self) -> &[F] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(findings: std::ops::Range<usize>) -> Findings<usize> {
        let mut found = Findings::default();
        findings.for_each(|finding| found.keep(finding));
        found
    }

    #[test]
    fn what_is_kept_has_a_bound_and_what_is_counted_has_none() {
        let many = of(0..KEPT_MAX + 5);
        assert_eq!((many.len(), many.count()), (KEPT_MAX, KEPT_MAX as u64 + 5));

        let mut all = of(7..KEPT_MAX + 5);
        all.join(many.clone());
        assert_eq!((all.len(), all.count()), (KEPT_MAX, 2 * KEPT_MAX as u64 + 3));
        assert_eq!(all[KEPT_MAX - 3..], [KEPT_MAX + 4, 0, 1], "the first of the others");
        all.join(many);
        assert_eq!((all.len(), all.count()), (KEPT_MAX, 3 * KEPT_MAX as u64 + 8));
    }
}

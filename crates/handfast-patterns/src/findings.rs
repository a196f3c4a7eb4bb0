//! What was found that is not as it must be: counted without a bound, kept within one.

/// Findings kept; more are only counted.
const KEPT_MAX: usize = 1000;

/// Counts a finding, and keeps it if there is room.
pub(crate) fn keep<F>(findings: &mut Vec<F>, count: &mut u64, finding: F) {
    *count += 1;
    if findings.len() < KEPT_MAX {
        findings.push(finding);
    }
}

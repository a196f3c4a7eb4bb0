//! Splits statements into commands that fit into one message.

use std::ops::Range;

/// The size of the statements of a command: the driver sends it as one document, which a server accepts up to 16 MiB and 16 kB.
pub(crate) const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The size of an array element beside its value: type, index and closing zero.
const ELEMENT_BYTES: usize = 8;

/// Returns the ranges of elements for each command, by their sizes. An element that is too large gets a command of its own,
/// which the server refuses.
pub(crate) fn split(sizes: impl IntoIterator<Item = usize>, count_max: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes, mut end) = (0, 0_usize, 0);
    for size in sizes {
        let size = size.saturating_add(ELEMENT_BYTES);
        let is_full = end - start >= count_max.max(1) || bytes.saturating_add(size) > BATCH_BYTES_MAX;
        if end > start && is_full {
            ranges.push(start..end);
            (start, bytes) = (end, 0);
        }
        bytes = bytes.saturating_add(size);
        end += 1;
    }
    if end > start {
        ranges.push(start..end);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::{BATCH_BYTES_MAX, ELEMENT_BYTES, split};

    fn check(sizes: &[usize], count_max: usize, expected: &[(usize, usize)]) {
        let ranges = expected.iter().map(|(start, end)| *start..*end).collect::<Vec<_>>();
        assert_eq!(split(sizes.iter().copied(), count_max), ranges, "{sizes:?}");
    }

    #[test]
    fn no_command_is_too_large() {
        let half = BATCH_BYTES_MAX / 2 - ELEMENT_BYTES;
        check(&[], 10, &[]);
        check(&[1, 2, 3], 10, &[(0, 3)]);
        check(&[1, 2, 3], 2, &[(0, 2), (2, 3)]);
        check(&[half, half], 10, &[(0, 2)]);
        check(&[half, half, 1], 10, &[(0, 2), (2, 3)]);
        check(&[half + 1, half], 10, &[(0, 1), (1, 2)]);
        check(&[1, BATCH_BYTES_MAX * 2, 1], 10, &[(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn every_element_is_in_one_command() {
        check(&[5; 4], 0, &[(0, 1), (1, 2), (2, 3), (3, 4)]);
    }
}

//! Numbers in order, of which any may be removed, and whose n-th is found quickly: the values of a moving median.

/// The most numbers of one chunk: some kilobytes that are moved to make place for a number.
const CHUNK_LEN_MAX: usize = 512;

/// Sorted numbers in chunks.
#[derive(Debug, Default)]
pub(super) struct SortedNumbers {
    /// Each chunk is sorted and not empty, and none has a number that is less than those of the chunk before.
    chunks: Vec<Vec<f64>>,
    len: usize,
}

impl SortedNumbers {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, number: f64) {
        self.len += 1;
        let index = self.chunk_of(number).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(vec![number]);
            return;
        };
        let at = chunk.partition_point(|known| known.total_cmp(&number).is_lt());
        chunk.insert(at, number);
        if chunk.len() > CHUNK_LEN_MAX {
            let upper = chunk.split_off(CHUNK_LEN_MAX / 2);
            self.chunks.insert(index + 1, upper);
        }
    }

    /// Removes one of the numbers that equal this one.
    pub(super) fn remove(&mut self, number: f64) {
        let index = self.chunk_of(number);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let at = chunk.partition_point(|known| known.total_cmp(&number).is_lt());
        if chunk.get(at).is_none_or(|known| known.total_cmp(&number).is_ne()) {
            return;
        }
        chunk.remove(at);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(index);
        }
    }

    /// Returns the n-th number, counted from 0.
    pub(super) fn nth(&self, mut n: usize) -> Option<f64> {
        for chunk in &self.chunks {
            match chunk.get(n) {
                Some(number) => return Some(*number),
                None => n -= chunk.len(),
            }
        }
        None
    }

    /// Returns the first chunk whose last number is not less than `number`.
    fn chunk_of(&self, number: f64) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| last.total_cmp(&number).is_lt()))
    }
}

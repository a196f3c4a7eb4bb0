//! Files in memory, which count what is written.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::{SpillFile, SpillSpace};
use crate::{
    Code, Error, Result,
    context::{Context, QueryMemory, StageTotal},
    expression::testing::context,
};

/// A space of files in memory.
#[derive(Debug, Default)]
pub(crate) struct MemorySpace {
    pub(crate) files: AtomicUsize,
    pub(crate) written: AtomicU64,
    /// The bytes after which writes fail; 0 for no limit.
    pub(crate) bytes_max: u64,
}

#[derive(Debug)]
struct MemoryFile {
    space: Arc<MemorySpace>,
    bytes: Vec<u8>,
}

/// A [`MemorySpace`] that its files share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space(pub(crate) Arc<MemorySpace>);

impl SpillSpace for Space {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        self.0.files.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(MemoryFile { space: Arc::clone(&self.0), bytes: Vec::new() }))
    }

    fn used(&self) -> u64 {
        0
    }

    fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.space.files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SpillFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.space.written.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
        if self.space.bytes_max != 0 && written > self.space.bytes_max {
            return Err(Error::new(Code::OutOfDiskSpace, "no space"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let offset = offset as usize;
        buffer.copy_from_slice(&self.bytes[offset..offset + buffer.len()]);
        Ok(())
    }
}

/// Returns a context whose stages hold few bytes, and write the rest into the space.
pub(crate) fn spilling(stage_bytes_max: usize, total_bytes_max: usize, space: &Space) -> Context {
    let total = StageTotal::new(total_bytes_max);
    context().with_memory(QueryMemory { stage_bytes_max, total, spill: Some(Arc::new(space.clone())) })
}

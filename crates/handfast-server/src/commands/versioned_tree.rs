//! The commands of versioned trees: the steps of the pattern, for programs in any language.
//!
//! ```text
//! handfastWriteTree  {version, written}              commits a version with all of its nodes, or nothing of it
//! handfastReadTree   {exists, version, root, nodes}  one version, the newest or an older one
//! handfastSweepTree  {swept, failed, more}           removes what writers that died have left
//! ```

pub(super) mod read;
pub(super) mod sweep;
pub(super) mod write;

#[cfg(test)]
mod tests;

//! Capabilities that a server may lack.

use handfast_store::{Error, Result};

use crate::error::unsupported;

/// A feature of MongoDB that other servers of its protocol may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// An update matches and changes a document in one step, despite concurrent writes.
    AtomicUpdates,
    /// An update may be an aggregation pipeline.
    PipelineUpdates,
    /// Constants (`c`) of such an update.
    Constants,
    /// Updates have `arrayFilters` for `$[name]`.
    ArrayFilters,
    /// An update of one document may have a sort.
    SortedUpdates,
    /// A request may name its index.
    Hints,
    /// Variables (`let`) of a request.
    Variables,
    /// An index without the documents that lack its fields.
    SparseIndexes,
    /// An index of the documents that match a filter.
    PartialIndexes,
    /// An index by which documents expire.
    ExpiringIndexes,
    /// An index that is maintained and not used.
    HiddenIndexes,
    /// An index's settings can be changed (`collMod`).
    IndexChanges,
    /// A collection can be renamed to the name of another, which is dropped.
    RenameOntoAnother,
    /// A collection can be renamed to another database.
    RenameAcrossDatabases,
    /// Decimal128 values.
    Decimals,
    /// NaN and infinite doubles.
    InfiniteNumbers,
    /// A document whose `_id` is or contains NaN can be replaced.
    NanIds,
    /// MinKey and MaxKey.
    ExtremeKeys,
    /// JavaScript code, and undefined.
    ObsoleteTypes,
    /// An array as an element of an array.
    NestedArrays,
    /// A dot in the name of a stored field.
    DottedNames,
    /// Comparison of strings by the rules of a language.
    Collations,
}

use Capability as C;

impl Capability {
    /// All capabilities.
    pub const ALL: [Capability; 22] = [
        C::AtomicUpdates,
        C::PipelineUpdates,
        C::Constants,
        C::ArrayFilters,
        C::SortedUpdates,
        C::Hints,
        C::Variables,
        C::SparseIndexes,
        C::PartialIndexes,
        C::ExpiringIndexes,
        C::HiddenIndexes,
        C::IndexChanges,
        C::RenameOntoAnother,
        C::RenameAcrossDatabases,
        C::Decimals,
        C::InfiniteNumbers,
        C::NanIds,
        C::ExtremeKeys,
        C::ObsoleteTypes,
        C::NestedArrays,
        C::DottedNames,
        C::Collations,
    ];

    /// Returns the name, which completes "the server has no ..".
    pub fn name(self) -> &'static str {
        match self {
            C::AtomicUpdates => "atomic updates",
            C::PipelineUpdates => "updates by pipeline",
            C::Constants => "constants of updates",
            C::ArrayFilters => "array filters",
            C::SortedUpdates => "sort of updates",
            C::Hints => "hints",
            C::Variables => "variables of requests",
            C::SparseIndexes => "sparse indexes",
            C::PartialIndexes => "partial indexes",
            C::ExpiringIndexes => "expiring indexes",
            C::HiddenIndexes => "hidden indexes",
            C::IndexChanges => "changes of indexes",
            C::RenameOntoAnother => "rename onto another collection",
            C::RenameAcrossDatabases => "rename to another database",
            C::Decimals => "decimal values",
            C::InfiniteNumbers => "NaN and infinity",
            C::NanIds => "documents whose _id has a NaN",
            C::ExtremeKeys => "MinKey and MaxKey",
            C::ObsoleteTypes => "values of the types code and undefined",
            C::NestedArrays => "arrays within arrays",
            C::DottedNames => "field names with a point",
            C::Collations => "collations",
        }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The capabilities of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The product and version, for messages: `FerretDB v1.24.2`.
    product: String,
    /// The missing capabilities, in ascending order.
    missing: Vec<Capability>,
}

impl Capabilities {
    pub(crate) fn new(product: String, missing: impl IntoIterator<Item = Capability>) -> Self {
        let mut missing: Vec<_> = missing.into_iter().collect();
        missing.sort_unstable();
        missing.dedup();
        Capabilities { product, missing }
    }

    /// Returns whether the server has a capability.
    pub fn has(&self, capability: Capability) -> bool {
        !self.missing.contains(&capability)
    }

    /// Returns the missing capabilities.
    pub fn missing(&self) -> &[Capability] {
        &self.missing
    }

    /// Refuses a missing capability.
    ///
    /// # Errors
    /// `CommandNotSupported` (115) with its name.
    pub(crate) fn need(&self, capability: Capability) -> Result<()> {
        if self.has(capability) { Ok(()) } else { Err(self.lack(capability)) }
    }

    pub(crate) fn lack(&self, capability: Capability) -> Error {
        unsupported(format!("the server ({}) has no {capability}", self.product))
    }
}

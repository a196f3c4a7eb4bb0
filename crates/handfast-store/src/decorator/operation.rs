//! The operations of the contract by name, for counting and for plans of faults.

/// An operation of [`DocumentStore`](crate::DocumentStore), [`AtomicStore`](crate::AtomicStore),
/// [`Snapshot`](crate::Snapshot) or [`Cursor`](crate::Cursor).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Operation {
    Insert,
    Find,
    Update,
    FindAndModify,
    Delete,
    Aggregate,
    Count,
    Distinct,
    Explain,
    CreateIndexes,
    DropIndexes,
    ListIndexes,
    CreateCollection,
    ModifyCollection,
    RenameCollection,
    DropCollection,
    ListCollections,
    ListDatabases,
    DropDatabase,
    CollectionStats,
    Flush,
    Snapshot,
    Commit,
    SnapshotGet,
    SnapshotFind,
    NextPage,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 26] = [
        Operation::Insert,
        Operation::Find,
        Operation::Update,
        Operation::FindAndModify,
        Operation::Delete,
        Operation::Aggregate,
        Operation::Count,
        Operation::Distinct,
        Operation::Explain,
        Operation::CreateIndexes,
        Operation::DropIndexes,
        Operation::ListIndexes,
        Operation::CreateCollection,
        Operation::ModifyCollection,
        Operation::RenameCollection,
        Operation::DropCollection,
        Operation::ListCollections,
        Operation::ListDatabases,
        Operation::DropDatabase,
        Operation::CollectionStats,
        Operation::Flush,
        Operation::Snapshot,
        Operation::Commit,
        Operation::SnapshotGet,
        Operation::SnapshotFind,
        Operation::NextPage,
    ];

    /// The name as the contract spells it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Insert => "insert",
            Operation::Find => "find",
            Operation::Update => "update",
            Operation::FindAndModify => "find_and_modify",
            Operation::Delete => "delete",
            Operation::Aggregate => "aggregate",
            Operation::Count => "count",
            Operation::Distinct => "distinct",
            Operation::Explain => "explain",
            Operation::CreateIndexes => "create_indexes",
            Operation::DropIndexes => "drop_indexes",
            Operation::ListIndexes => "list_indexes",
            Operation::CreateCollection => "create_collection",
            Operation::ModifyCollection => "modify_collection",
            Operation::RenameCollection => "rename_collection",
            Operation::DropCollection => "drop_collection",
            Operation::ListCollections => "list_collections",
            Operation::ListDatabases => "list_databases",
            Operation::DropDatabase => "drop_database",
            Operation::CollectionStats => "collection_stats",
            Operation::Flush => "flush",
            Operation::Snapshot => "snapshot",
            Operation::Commit => "commit",
            Operation::SnapshotGet => "snapshot_get",
            Operation::SnapshotFind => "snapshot_find",
            Operation::NextPage => "next_page",
        }
    }

    /// Whether the operation may change something: after its failure the question arises whether it did.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Operation::Insert
                | Operation::Update
                | Operation::FindAndModify
                | Operation::Delete
                | Operation::Aggregate
                | Operation::CreateIndexes
                | Operation::DropIndexes
                | Operation::CreateCollection
                | Operation::ModifyCollection
                | Operation::RenameCollection
                | Operation::DropCollection
                | Operation::DropDatabase
                | Operation::Commit
        )
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

//! The table of the operations of [`DocumentStore`](super::DocumentStore).
//!
//! What is the same for all operations is generated from it: the forwarding to another store, the names and facts in
//! [`Operation`](crate::decorator::Operation), the fault points and the retries.

/// Calls a macro with one row for each operation, in the order of the trait:
///
/// ```text
/// Insert insert(request: Insert) -> InsertOutcome, write;
/// |      |      |                   |              |
/// |      |      arguments           result         effect
/// |      method of the trait
/// variant of `Operation`
/// ```
///
/// | effect | meaning |
/// | --- | --- |
/// | `read` | changes nothing |
/// | `write` | may change something; a repetition may change it again, or fail |
/// | `idempotent` | may change something; a repetition changes nothing more and succeeds as well |
///
/// The macro that is called must have the types of the rows in scope. An argument is either a value or a reference to a
/// named type, so that a pattern can tell them apart: `$argument:ident: $(&$borrowed:ident)? $($owned:ident)?`.
macro_rules! operations {
    ($callback:ident) => {
        $callback! {
            Insert insert(request: Insert) -> InsertOutcome, write;
            Find find(request: Find) -> Box<dyn Cursor>, read;
            Update update(request: Update) -> UpdateOutcome, write;
            FindAndModify find_and_modify(request: FindAndModify) -> FindAndModifyOutcome, write;
            Delete delete(request: Delete) -> DeleteOutcome, write;
            Aggregate aggregate(request: Aggregate) -> Box<dyn Cursor>, write;
            Count count(request: Count) -> u64, read;
            Distinct distinct(request: Distinct) -> Vec<RawBson>, read;
            Explain explain(request: Explain) -> RawDocumentBuf, read;
            CreateIndexes create_indexes(request: CreateIndexes) -> IndexCounts, idempotent;
            DropIndexes drop_indexes(request: DropIndexes) -> u32, write;
            ListIndexes list_indexes(namespace: &Namespace) -> Vec<IndexInfo>, read;
            CreateCollection create_collection(namespace: &Namespace, options: CollectionOptions) -> (), idempotent;
            ModifyCollection modify_collection(request: ModifyCollection) -> RawDocumentBuf, idempotent;
            RenameCollection rename_collection(request: RenameCollection) -> (), write;
            DropCollection drop_collection(namespace: &Namespace) -> bool, write;
            ListCollections list_collections(database: &str) -> Vec<CollectionInfo>, read;
            ListDatabases list_databases() -> Vec<String>, read;
            DropDatabase drop_database(database: &str) -> bool, write;
            CollectionStats collection_stats(namespace: &Namespace) -> CollectionStats, read;
            CheckCollection check_collection(namespace: &Namespace) -> CollectionCheck, read;
            Watch watch(request: Watch) -> Box<dyn ChangeStream>, read;
            Flush flush() -> (), read;
        }
    };
}

pub(crate) use operations;

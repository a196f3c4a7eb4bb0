//! Stores with one defect each: the suite has to find every one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use crate::decorator::DelegatingStore;
use crate::ticket::Recorded;
use crate::{
    Applied, AtomicBatch, AtomicStore, BatchLimit, Before, Changed, CollectionStats, CommitTimestamp, Count,
    CreateIndexes, Cursor, Delete, DeleteOutcome, Distinct, DocumentStore, Error, Find, FindAndModify,
    FindAndModifyOutcome, IndexCounts, Insert, InsertOutcome, MemoryStore, Namespace, Page, Read, RenameCollection,
    Result, Snapshot, Sources, Ticket, Update, UpdateOutcome, UpdateSpec, UpdateStatement, WriteError, change,
    insertion,
};

/// A defect of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// An update reads, waits a little, and writes what it read.
    UpdateIsNotAtomic,
    /// A find-and-modify reads the document and changes it in a second step.
    FindAndModifyIsNotAtomic,
    /// Unique indexes are created without their constraint.
    UniqueIsIgnored,
    /// Sparse indexes are created as indexes of all documents.
    SparseIsIgnored,
    /// Sparse indexes are refused, as a store without this feature does.
    SparseIsRefused,
    /// A find returns one document more than its limit.
    LimitIsOffByOne,
    /// A find skips one document too many.
    SkipIsOffByOne,
    /// A page holds one document more than allowed.
    PageIsOffByOne,
    /// A cursor begins again after its end.
    CursorRestarts,
    /// Every fiftieth insert is acknowledged and not applied.
    InsertIsLost,
    /// An ordered insert continues after an error.
    OrderedGoesOn,
    /// An unordered insert stops at an error.
    UnorderedStops,
    /// The sort of a find is ignored.
    SortIsForgotten,
    /// The projection of a find is ignored.
    ProjectionIsForgotten,
    /// A hint that names no index is ignored.
    HintIsIgnored,
    /// A duplicate is reported as another error.
    DuplicateHasAnotherCode,
    /// A refusal says that it may have been applied.
    RefusalIsInDoubt,
    /// `modified` counts the documents that matched.
    ModifiedCountsMatched,
    /// An upsert does not return the `_id` of the inserted document.
    UpsertIsSilent,
    /// A delete of one document removes all that match.
    DeleteOneDeletesAll,
    /// A collection that is created after a drop has the documents of the dropped one.
    DropKeepsDocuments,
    /// A rename copies the documents and keeps the old collection.
    RenameCopies,
    /// A commit does not look for conflicts.
    CommitIgnoresConflicts,
    /// A commit takes the document versions that a batch gives for the newest ones, and does not look for conflicts.
    BeforeIsBelieved,
    /// A commit applies its writes one by one.
    CommitIsNotAtomic,
    /// A unique key that was taken after the snapshot is reported as a duplicate, not as a conflict.
    KeyConflictIsADuplicate,
    /// A snapshot returns the newest documents.
    SnapshotIsNotStable,
    /// A snapshot reports every document as unchanged.
    SnapshotKnowsNoChanges,
    /// Counts do not stop at their limit.
    CountIgnoresLimit,
    /// The first distinct value is returned twice.
    DistinctRepeats,
    /// Statistics miss the last document.
    StatsAreOffByOne,
    /// A write with a ticket is applied as often as it is sent.
    TicketIsIgnored,
    /// The record of a ticket is written in a step after the write.
    RecordIsAnotherStep,
    /// All tickets of a session count as one, whatever their numbers.
    TicketNumberIsIgnored,
    /// The ticket of a statement that changes many documents is ignored.
    TicketOfManyIsIgnored,
    /// All statements of a request have the ticket of the first.
    StatementsShareATicket,
    /// The ticket of a batch is ignored.
    TicketOfABatchIsIgnored,
    /// The reads of a batch are not checked.
    ReadsAreIgnored,
    /// The reads of single documents are checked, and those of ranges are not.
    RangesAreIgnored,
    /// A range is checked by the documents that are in it now, so that one that has left it is missed.
    RangesMissWhatLeft,
    /// A range is checked as if it were the whole collection.
    RangesAreCollections,
    /// A batch uses an existing collection that it should have created.
    CreationTakesWhatIsThere,
}

impl Defect {
    pub(crate) const ALL: [Defect; 42] = [
        Defect::UpdateIsNotAtomic,
        Defect::FindAndModifyIsNotAtomic,
        Defect::UniqueIsIgnored,
        Defect::SparseIsIgnored,
        Defect::SparseIsRefused,
        Defect::LimitIsOffByOne,
        Defect::SkipIsOffByOne,
        Defect::PageIsOffByOne,
        Defect::CursorRestarts,
        Defect::InsertIsLost,
        Defect::OrderedGoesOn,
        Defect::UnorderedStops,
        Defect::SortIsForgotten,
        Defect::ProjectionIsForgotten,
        Defect::HintIsIgnored,
        Defect::DuplicateHasAnotherCode,
        Defect::RefusalIsInDoubt,
        Defect::ModifiedCountsMatched,
        Defect::UpsertIsSilent,
        Defect::DeleteOneDeletesAll,
        Defect::DropKeepsDocuments,
        Defect::RenameCopies,
        Defect::CommitIgnoresConflicts,
        Defect::BeforeIsBelieved,
        Defect::CommitIsNotAtomic,
        Defect::KeyConflictIsADuplicate,
        Defect::SnapshotIsNotStable,
        Defect::SnapshotKnowsNoChanges,
        Defect::CountIgnoresLimit,
        Defect::DistinctRepeats,
        Defect::StatsAreOffByOne,
        Defect::TicketIsIgnored,
        Defect::RecordIsAnotherStep,
        Defect::TicketNumberIsIgnored,
        Defect::TicketOfManyIsIgnored,
        Defect::StatementsShareATicket,
        Defect::TicketOfABatchIsIgnored,
        Defect::ReadsAreIgnored,
        Defect::RangesAreIgnored,
        Defect::RangesMissWhatLeft,
        Defect::RangesAreCollections,
        Defect::CreationTakesWhatIsThere,
    ];

    /// Returns the name of the case that catches the defect.
    pub(crate) fn caught_by(self) -> &'static str {
        match self {
            Defect::UpdateIsNotAtomic => "concurrent_increments_are_all_counted",
            Defect::FindAndModifyIsNotAtomic => "concurrent_claims_take_each_document_once",
            Defect::UniqueIsIgnored => "unique_index_refuses_a_second_document",
            Defect::SparseIsIgnored => "sparse_index_leaves_documents_out_under_a_hint",
            Defect::SparseIsRefused => "sparse_unique_index_lets_many_miss_the_field",
            Defect::LimitIsOffByOne => "cursor_limit_ends_it",
            Defect::SkipIsOffByOne => "find_skips_and_limits_after_sorting",
            Defect::PageIsOffByOne => "cursor_pages_hold_as_many_as_allowed",
            Defect::CursorRestarts => "cursor_stays_at_its_end",
            Defect::InsertIsLost => "insert_of_many_keeps_all",
            Defect::OrderedGoesOn => "insert_ordered_stops_at_the_first_error",
            Defect::UnorderedStops => "insert_unordered_goes_on_after_errors",
            Defect::SortIsForgotten => "find_sorts_up_and_down",
            Defect::ProjectionIsForgotten => "find_projects_fields",
            Defect::HintIsIgnored => "find_refuses_a_hint_to_no_index",
            Defect::DuplicateHasAnotherCode => "insert_of_a_duplicate_names_collection_index_and_key",
            Defect::RefusalIsInDoubt => "insert_refuses_an_array_as_id",
            Defect::ModifiedCountsMatched => "update_that_changes_nothing_modifies_nothing",
            Defect::UpsertIsSilent => "upsert_takes_the_id_of_the_filter",
            Defect::DeleteOneDeletesAll => "delete_one_removes_one",
            Defect::DropKeepsDocuments => "collection_drop_takes_its_documents_and_indexes",
            Defect::RenameCopies => "rename_moves_documents_and_indexes",
            Defect::CommitIgnoresConflicts => "commit_conflicts_with_a_later_update",
            Defect::BeforeIsBelieved => "commit_conflicts_with_another_commit",
            Defect::CommitIsNotAtomic => "commit_that_violates_unique_applies_nothing",
            Defect::KeyConflictIsADuplicate => "commit_conflicts_if_a_unique_key_was_taken_after_the_snapshot",
            Defect::SnapshotIsNotStable => "snapshot_does_not_see_later_writes",
            Defect::CountIgnoresLimit => "count_skips_and_limits",
            Defect::DistinctRepeats => "distinct_values_in_order",
            Defect::StatsAreOffByOne => "stats_count_documents_and_bytes",
            Defect::TicketIsIgnored => "ticket_of_an_update_is_used_once",
            Defect::RecordIsAnotherStep => "ticket_has_its_record_in_the_same_step",
            Defect::TicketNumberIsIgnored => "ticket_with_another_number_is_another_write",
            Defect::TicketOfManyIsIgnored => "ticket_of_many_documents_is_refused",
            Defect::StatementsShareATicket => "ticket_of_two_hundred_statements_is_used_once",
            Defect::TicketOfABatchIsIgnored => "ticket_of_a_batch_answers_the_first_timestamp",
            Defect::ReadsAreIgnored => "read_of_a_document_conflicts_with_its_update",
            Defect::RangesAreIgnored => "read_of_a_range_conflicts_with_a_phantom",
            Defect::RangesMissWhatLeft => "read_of_a_range_conflicts_with_a_document_that_leaves",
            Defect::RangesAreCollections => "read_of_a_range_does_not_conflict_with_what_is_outside",
            Defect::SnapshotKnowsNoChanges => "snapshot_knows_of_changes",
            Defect::CreationTakesWhatIsThere => "creation_conflicts_with_a_collection_that_is_there",
        }
    }
}

/// A store in memory with a defect.
pub(crate) struct Broken {
    store: MemoryStore,
    defect: Defect,
    inserts: AtomicU64,
}

impl Broken {
    pub(crate) fn new(defect: Defect) -> Self {
        Broken { store: MemoryStore::new(Sources::seeded(5)), defect, inserts: AtomicU64::new(0) }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn distort(&self, errors: &mut [WriteError]) {
        for WriteError { error, .. } in errors {
            if self.is(Defect::RefusalIsInDoubt) {
                *error = Error::new(error.class(), Applied::Maybe, error.code(), error.message());
            }
            if self.is(Defect::DuplicateHasAnotherCode) && error.code() == Code::DuplicateKey {
                *error = Error::command(Code::BadValue, error.message());
            }
        }
    }

    /// Returns the documents that match a filter now.
    async fn read(
        &self,
        namespace: &Namespace,
        filter: &RawDocumentBuf,
        sort: &RawDocumentBuf,
    ) -> Result<Vec<RawDocumentBuf>> {
        let find = Find { sort: sort.clone(), ..Find::new(namespace.clone(), filter.clone()) };
        let page = self.store.find(find).await?.next_page(BatchLimit::REPLY).await?;
        tokio::task::yield_now().await;
        Ok(page.documents)
    }

    /// Applies an update of one statement, and writes the record of its ticket in a second step.
    async fn update_then_record(&self, request: Update, ticket: Ticket) -> Result<UpdateOutcome> {
        let records = Ticket::namespace()?;
        let mut outcome = self.store.update(Update { ticket: None, ..request }).await?;
        tokio::task::yield_now().await;
        let changed = if outcome.modified > 0 { Changed::Modified } else { Changed::Same };
        if let Some(result) = changed.to_result() {
            let record = ticket.record(None, &result, bson::DateTime::from_millis(0))?;
            let filter = rawdoc! { "_id": ticket.record_id() };
            let replacement =
                UpdateStatement { upsert: true, ..UpdateStatement::one(filter, UpdateSpec::Document(record)) };
            outcome.errors.extend(self.store.update(Update::new(records, vec![replacement])).await?.errors);
        }
        Ok(outcome)
    }

    /// Replaces each range by reads of the documents that are in it now.
    async fn documents_of(&self, reads: Vec<Read>) -> Result<Vec<Read>> {
        let mut documents = Vec::new();
        for read in reads {
            match read {
                Read::Matching { namespace, filter, .. } => {
                    for document in self.read(&namespace, &filter, &rawdoc! {}).await? {
                        documents.push(Read::Document(namespace.clone(), insertion::id(&document)?.into()));
                    }
                }
                Read::Document(..) => documents.push(read),
            }
        }
        Ok(documents)
    }

    async fn update_with_one_ticket(&self, request: Update) -> Result<UpdateOutcome> {
        let mut outcome = UpdateOutcome::default();
        for statement in request.statements.clone() {
            let one = self.store.update(Update { statements: vec![statement], ..request.clone() }).await?;
            outcome.matched += one.matched;
            outcome.modified += one.modified;
        }
        Ok(outcome)
    }

    async fn update_by_reading(&self, request: Update) -> Result<UpdateOutcome> {
        let mut outcome = UpdateOutcome::default();
        for statement in &request.statements {
            let change = change::Change::of_statement(statement, &request.variables)?;
            let context = Sources::seeded(1).context(&rawdoc! {});
            for before in self.read(&request.namespace, &statement.filter, &statement.sort).await? {
                let Some(applied) = change.apply(&before, &context)? else { continue };
                tokio::task::yield_now().await;
                let id = rawdoc! { "_id": RawBson::from(insertion::id(&before)?) };
                let whole = UpdateStatement::one(id, UpdateSpec::Document(applied.document));
                self.store.update(Update::new(request.namespace.clone(), vec![whole])).await?;
                outcome.matched += 1;
                outcome.modified += u64::from(applied.modified);
                if !statement.multi {
                    break;
                }
            }
        }
        Ok(outcome)
    }
}

#[async_trait]
impl DelegatingStore for Broken {
    type Inner = MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    fn name(&self) -> &'static str {
        "broken"
    }

    async fn insert(&self, mut request: Insert) -> Result<InsertOutcome> {
        let wanted = request.documents.len() as u64;
        if self.is(Defect::InsertIsLost) {
            request.documents.retain(|_| self.inserts.fetch_add(1, Ordering::SeqCst) % 50 != 49);
        }
        if self.is(Defect::OrderedGoesOn) {
            request.ordered = false;
        }
        if self.is(Defect::UnorderedStops) {
            request.ordered = true;
        }
        let mut outcome = self.store.insert(request).await?;
        if self.is(Defect::InsertIsLost) {
            outcome.inserted = wanted - outcome.errors.len() as u64;
        }
        self.distort(&mut outcome.errors);
        Ok(outcome)
    }

    async fn find(&self, mut request: Find) -> Result<Box<dyn Cursor>> {
        match self.defect {
            Defect::LimitIsOffByOne => request.limit = request.limit.map(|limit| limit.saturating_add(1)),
            Defect::SkipIsOffByOne if request.skip > 0 => request.skip = request.skip.saturating_add(1),
            Defect::SortIsForgotten => request.sort = rawdoc! {},
            Defect::ProjectionIsForgotten => request.projection = rawdoc! {},
            Defect::HintIsIgnored => request.hint = None,
            _ => {}
        }
        let cursor = self.store.find(request.clone()).await?;
        Ok(Box::new(BrokenCursor { cursor, store: self.store.clone(), request, defect: self.defect }))
    }

    async fn update(&self, mut request: Update) -> Result<UpdateOutcome> {
        let many = request.statements.iter().any(|statement| statement.multi);
        match (self.defect, request.ticket) {
            (Defect::TicketIsIgnored, _) => request.ticket = None,
            (Defect::TicketOfManyIsIgnored, _) if many => request.ticket = None,
            (Defect::TicketNumberIsIgnored, Some(ticket)) => request.ticket = Some(Ticket { number: 1, ..ticket }),
            (Defect::RecordIsAnotherStep, Some(ticket)) => return self.update_then_record(request, ticket).await,
            (Defect::StatementsShareATicket, Some(_)) => return self.update_with_one_ticket(request).await,
            _ => {}
        }
        if self.is(Defect::UpdateIsNotAtomic) {
            return self.update_by_reading(request).await;
        }
        let mut outcome = self.store.update(request).await?;
        if self.is(Defect::ModifiedCountsMatched) {
            outcome.modified = outcome.matched;
        }
        if self.is(Defect::UpsertIsSilent) {
            outcome.upserted.clear();
        }
        self.distort(&mut outcome.errors);
        Ok(outcome)
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        if !self.is(Defect::FindAndModifyIsNotAtomic) {
            return self.store.find_and_modify(request).await;
        }
        let found = self.read(&request.namespace, &request.filter, &request.sort).await?;
        let Some(first) = found.first() else { return self.store.find_and_modify(request).await };
        tokio::task::yield_now().await;
        let filter = rawdoc! { "_id": RawBson::from(insertion::id(first)?) };
        self.store.find_and_modify(FindAndModify { filter, ..request }).await
    }

    async fn delete(&self, mut request: Delete) -> Result<DeleteOutcome> {
        if self.is(Defect::DeleteOneDeletesAll) {
            request.statements.iter_mut().for_each(|statement| statement.multi = true);
        }
        self.store.delete(request).await
    }

    async fn count(&self, mut request: Count) -> Result<u64> {
        if self.is(Defect::CountIgnoresLimit) {
            request.limit = None;
        }
        self.store.count(request).await
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        let mut values = self.store.distinct(request).await?;
        if self.is(Defect::DistinctRepeats) {
            values.extend(values.first().cloned());
        }
        Ok(values)
    }

    async fn create_indexes(&self, mut request: CreateIndexes) -> Result<IndexCounts> {
        if self.is(Defect::SparseIsRefused) && request.indexes.iter().any(|index| index.sparse) {
            return Err(Error::command(Code::CommandNotSupported, "the store has no sparse indexes"));
        }
        for index in &mut request.indexes {
            index.unique &= !self.is(Defect::UniqueIsIgnored);
            index.sparse &= !self.is(Defect::SparseIsIgnored);
        }
        self.store.create_indexes(request).await
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        let from = request.from.clone();
        let documents = self.read(&from, &rawdoc! {}, &rawdoc! {}).await?;
        self.store.rename_collection(request).await?;
        if self.is(Defect::RenameCopies) {
            self.store.insert(Insert::new(from, documents)).await?;
        }
        Ok(())
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        let documents = self.read(namespace, &rawdoc! {}, &rawdoc! {}).await?;
        let dropped = self.store.drop_collection(namespace).await?;
        if self.is(Defect::DropKeepsDocuments) && !documents.is_empty() {
            self.store.insert(Insert::new(namespace.clone(), documents)).await?;
        }
        Ok(dropped)
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let mut stats = self.store.collection_stats(namespace).await?;
        if self.is(Defect::StatsAreOffByOne) {
            stats.count = stats.count.saturating_sub(1);
        }
        Ok(stats)
    }
}

struct BrokenCursor {
    cursor: Box<dyn Cursor>,
    store: MemoryStore,
    request: Find,
    defect: Defect,
}

#[async_trait]
impl Cursor for BrokenCursor {
    async fn next_page(&mut self, mut limit: BatchLimit) -> Result<Page> {
        if self.defect == Defect::PageIsOffByOne {
            limit.documents = limit.documents.saturating_add(1);
        }
        let page = self.cursor.next_page(limit).await?;
        if self.defect == Defect::CursorRestarts && page.exhausted {
            self.cursor = self.store.find(self.request.clone()).await?;
        }
        Ok(page)
    }
}

#[async_trait]
impl AtomicStore for Broken {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let snapshot = self.store.snapshot().await?;
        match self.defect {
            Defect::SnapshotIsNotStable => {
                Ok(Box::new(UnstableSnapshot { store: self.store.clone(), timestamp: snapshot.timestamp() }))
            }
            Defect::SnapshotKnowsNoChanges => Ok(Box::new(UncheckedSnapshot(snapshot))),
            _ => Ok(snapshot),
        }
    }

    async fn commit(&self, mut batch: AtomicBatch) -> Result<CommitTimestamp> {
        let gives_versions = batch.writes.iter().any(|write| write.before != Before::Unread);
        if self.is(Defect::CommitIgnoresConflicts) || (self.is(Defect::BeforeIsBelieved) && gives_versions) {
            batch.read_at = CommitTimestamp(u64::MAX);
        }
        match self.defect {
            Defect::TicketOfABatchIsIgnored => batch.ticket = None,
            Defect::ReadsAreIgnored => batch.reads.clear(),
            Defect::RangesAreIgnored => batch.reads.retain(|read| matches!(read, Read::Document(..))),
            Defect::RangesMissWhatLeft => batch.reads = self.documents_of(batch.reads).await?,
            Defect::RangesAreCollections => {
                for read in &mut batch.reads {
                    if let Read::Matching { filter, .. } = read {
                        *filter = rawdoc! {};
                    }
                }
            }
            Defect::CreationTakesWhatIsThere => {
                let existing = self.store.list_collections("conformance").await?;
                let exists = |name: &str| existing.iter().any(|collection| collection.name == name);
                batch.creations.retain(|creation| !exists(creation.namespace.collection()));
            }
            _ => {}
        }
        if !self.is(Defect::CommitIsNotAtomic) {
            let committed = self.store.commit(batch).await;
            return committed.map_err(|error| match error.message().contains("E11000") {
                true if self.is(Defect::KeyConflictIsADuplicate) => Error::command(Code::DuplicateKey, error.message()),
                _ => error,
            });
        }
        let mut last = batch.read_at;
        for write in batch.writes {
            let single = AtomicBatch { writes: vec![write], ..AtomicBatch::new(batch.read_at) };
            last = self.store.commit(single).await?;
        }
        Ok(last)
    }
}

struct UnstableSnapshot {
    store: MemoryStore,
    timestamp: CommitTimestamp,
}

#[async_trait]
impl Snapshot for UnstableSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.timestamp
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.store.snapshot().await?.get(namespace, id).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.store.find(request).await
    }
}

struct UncheckedSnapshot(Box<dyn Snapshot>);

#[async_trait]
impl Snapshot for UncheckedSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.0.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.0.get(namespace, id).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.0.find(request).await
    }

    fn is_unchanged(&self, _: &Namespace, _: RawBsonRef<'_>) -> bool {
        true
    }
}

/// Returns a subject of the suite whose store has the defect.
pub(crate) fn subject(defect: Defect) -> super::Subject {
    super::Subject::atomic(Arc::new(Broken::new(defect)))
}

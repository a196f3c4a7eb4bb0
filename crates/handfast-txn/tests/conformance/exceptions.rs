//! The conformance cases that do not pass, by name and reason.

use std::collections::{BTreeMap, BTreeSet};

use handfast_store::conformance::{self, Report};

/// Cases that do not pass for one common reason.
#[derive(Clone, Copy)]
pub(crate) struct Exceptions {
    /// A part of the suite's report on each case, whether the case was skipped or failed.
    pub(crate) said: &'static str,
    pub(crate) cases: &'static [&'static str],
    /// Whether the cases pass if background work was quick.
    pub(crate) sometimes_pass: bool,
}

/// `explain` describes the store's query, which does not include a transaction's own writes and older versions. A document may be
/// locked for a moment after its commit.
pub(crate) const EXPLAIN: Exceptions =
    Exceptions { said: "nReturned of 5", cases: &["explain_counts_what_it_returned"], sometimes_pass: true };

/// Operations on the catalog are refused inside of a transaction, and so are requests for details of an index or a record.
pub(crate) const CATALOG: Exceptions = Exceptions {
    sometimes_pass: false,
    said: "OperationNotSupportedInTransaction(263)",
    cases: &[
        "aggregate_merge_on_a_field_needs_a_unique_index",
        "aggregate_merge_updates_and_inserts",
        "aggregate_merge_when_matched_keeps_existing",
        "aggregate_merge_when_matched_runs_a_pipeline",
        "aggregate_merge_when_not_matched_discards",
        "aggregate_out_keeps_the_targets_indexes",
        "aggregate_out_replaces_a_collection",
        "aggregate_out_to_its_own_source",
        "collection_change_of_a_missing_one_is_refused",
        "collection_drop_says_whether_there_was_one",
        "collection_drop_takes_its_documents_and_indexes",
        "collection_of_the_same_name_gets_another_uuid",
        "concurrent_drop_beside_writes_leaves_a_sound_store",
        "concurrent_drops_say_yes_once",
        "concurrent_rename_beside_writes_loses_nothing",
        "cursor_outlives_its_collection",
        "database_drop_takes_all_its_collections",
        "database_list_has_those_with_collections",
        "find_returns_index_keys",
        "find_shows_record_ids_that_differ",
        "index_change_of_an_unknown_one_is_refused",
        "index_drop_in_a_missing_collection_is_refused",
        "index_drop_of_all_keeps_id",
        "index_drop_of_an_unknown_one_is_refused",
        "index_drop_of_id_is_refused",
        "index_is_dropped_by_name_and_by_key",
        "index_lifetime_is_changed",
        "rename_may_drop_its_target",
        "rename_moves_documents_and_indexes",
        "rename_of_a_missing_collection_is_refused",
        "rename_onto_an_existing_collection_is_refused",
        "rename_to_another_database",
        "rename_to_itself_is_refused",
        "unique_index_is_free_after_it_is_dropped",
    ],
};

/// A collection cannot be renamed from one store to another.
pub(crate) const RENAMES: Exceptions = Exceptions {
    sometimes_pass: false,
    said: "renaming across stores",
    cases: &[
        "concurrent_rename_beside_writes_loses_nothing",
        "rename_may_drop_its_target",
        "rename_moves_documents_and_indexes",
        "rename_of_a_missing_collection_is_refused",
        "rename_onto_an_existing_collection_is_refused",
        "rename_to_another_database",
    ],
};

/// A transaction's commit carries the ticket, not its requests.
pub(crate) const TICKETS: Exceptions = Exceptions {
    sometimes_pass: false,
    said: "the backend has no tickets",
    cases: &[
        "ticket_goes_on_where_the_first_attempt_stopped",
        "ticket_is_known_after_the_collection_is_gone",
        "ticket_is_known_after_the_document_is_gone",
        "ticket_is_used_once_beside_other_attempts",
        "ticket_of_a_claim_is_used_once_beside_other_attempts",
        "ticket_of_a_delete_is_used_once",
        "ticket_of_a_find_and_modify_answers_the_first_value",
        "ticket_of_a_find_and_modify_that_removes_answers_the_first_value",
        "ticket_of_a_find_and_modify_that_upserts_answers_the_same",
        "ticket_of_a_refused_write_leaves_no_record",
        "ticket_of_a_replacement_is_used_once",
        "ticket_of_an_insert_is_used_once",
        "ticket_of_an_update_found_by_search_is_used_once",
        "ticket_of_an_update_is_used_once",
        "ticket_of_an_upsert_answers_the_first_id",
        "ticket_of_an_upsert_is_used_once_beside_other_attempts",
        "ticket_of_another_kind_of_write_is_refused",
        "ticket_of_another_session_is_another_write",
        "ticket_of_many_documents_is_refused",
        "ticket_of_two_hundred_documents_is_used_once",
        "ticket_of_two_hundred_statements_is_used_once",
        "ticket_of_what_had_no_effect_leaves_no_record",
        "ticket_records_can_be_removed_by_age",
        "ticket_with_an_older_number_is_refused",
        "ticket_with_another_number_is_another_write",
    ],
};

/// A transactional store offers no atomic batches of its own; the stores below pass these cases themselves.
pub(crate) const BATCHES: Exceptions = Exceptions {
    sometimes_pass: false,
    said: "the backend is no AtomicStore",
    cases: &[
        "commit_applies_all_writes",
        "commit_conflicts_if_a_unique_key_was_taken_after_the_snapshot",
        "commit_conflicts_with_a_drop",
        "commit_conflicts_with_a_later_delete",
        "commit_conflicts_with_a_later_insert",
        "commit_conflicts_with_a_later_update",
        "commit_conflicts_with_a_rename",
        "commit_conflicts_with_an_insert_that_was_deleted",
        "commit_conflicts_with_another_commit",
        "commit_does_not_conflict_with_other_documents",
        "commit_first_committer_wins",
        "commit_is_seen_by_later_snapshots",
        "commit_is_seen_whole",
        "commit_keeps_fields_as_they_are",
        "commit_keeps_indexes_in_step",
        "commit_makes_collections",
        "commit_may_hand_on_a_unique_key",
        "commit_may_say_what_was_before",
        "commit_may_swap_unique_keys",
        "commit_of_a_delete_of_nothing_is_accepted",
        "commit_of_nothing_is_accepted",
        "commit_prevents_lost_updates",
        "commit_puts_over_and_deletes",
        "commit_refuses_a_document_with_another_id",
        "commit_refuses_a_taken_unique_key",
        "commit_refuses_two_puts_of_the_same_unique_key",
        "commit_returns_growing_timestamps",
        "commit_takes_nan_for_an_id",
        "commit_that_conflicts_applies_nothing",
        "commit_that_violates_unique_applies_nothing",
        "creation_conflicts_with_a_collection_that_is_there",
        "creation_happens_once",
        "creation_is_there_for_the_writes_of_its_batch",
        "creation_makes_a_collection_with_its_indexes",
        "creation_that_is_refused_leaves_nothing",
        "read_of_a_document_conflicts_with_its_delete",
        "read_of_a_document_conflicts_with_its_update",
        "read_of_a_document_does_not_conflict_with_others",
        "read_of_a_range_conflicts_with_a_change_inside",
        "read_of_a_range_conflicts_with_a_collection_that_comes",
        "read_of_a_range_conflicts_with_a_commit",
        "read_of_a_range_conflicts_with_a_delete",
        "read_of_a_range_conflicts_with_a_document_that_enters",
        "read_of_a_range_conflicts_with_a_document_that_leaves",
        "read_of_a_range_conflicts_with_a_drop",
        "read_of_a_range_conflicts_with_a_phantom",
        "read_of_a_range_conflicts_with_a_rename",
        "read_of_a_range_does_not_conflict_with_other_collections",
        "read_of_a_range_does_not_conflict_with_what_is_outside",
        "read_of_a_range_does_not_conflict_with_what_was_refused",
        "read_of_a_range_refuses_an_unknown_operator",
        "read_of_a_range_takes_variables",
        "read_of_no_document_conflicts_with_an_insert",
        "read_that_conflicts_applies_nothing",
        "reads_prevent_write_skew",
        "snapshot_does_not_see_later_commits",
        "snapshot_does_not_see_later_writes",
        "snapshot_find_filters_and_sorts",
        "snapshot_knows_of_changes",
        "snapshot_outlives_its_collection",
        "snapshot_reads_what_is_there",
        "snapshot_timestamps_grow_with_writes",
        "ticket_has_its_record_in_the_same_step",
        "ticket_of_a_batch_answers_the_first_timestamp",
        "ticket_of_a_batch_with_an_older_number_is_refused",
    ],
};

/// Checks that each case passed, or is in one of the lists for the reason that the list gives, and that each case of a list did not
/// pass.
pub(crate) fn check(report: &Report, all: &[Exceptions]) {
    let failed = report.failed.iter().map(|(name, why)| (*name, why.as_str()));
    let others = report.skipped.iter().chain(&report.refused).copied();
    let did_not_pass: BTreeMap<&str, &str> = failed.chain(others).collect();
    let is_listed =
        |(name, why): (&str, &str)| all.iter().any(|list| list.cases.contains(&name) && why.contains(list.said));
    let unlisted: Vec<_> = did_not_pass.iter().filter(|(name, why)| !is_listed((name, why))).collect();
    assert!(unlisted.is_empty(), "in no list: {unlisted:#?}");
    let always = all.iter().filter(|list| !list.sometimes_pass).flat_map(|list| list.cases);
    let passed: BTreeSet<_> = always.filter(|name| !did_not_pass.contains_key(*name)).collect();
    assert!(passed.is_empty(), "in a list, and passed: {passed:#?}");
    assert_eq!(report.passed.len() + did_not_pass.len(), conformance::cases().count(), "{report}");
}

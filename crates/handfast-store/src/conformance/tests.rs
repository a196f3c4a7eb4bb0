use std::sync::Arc;

use super::{Report, Subject, cases, run_matching};
use crate::{MemoryStore, Sources};

/// The whole suite on real threads.
fn conforms(make: impl Fn() -> Subject) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("runtime");
    runtime.block_on(run_matching(async || make(), |name| !waits_for_pipelines(name)))
}

/// Cases of what the language does not have yet.
fn waits_for_pipelines(name: &str) -> bool {
    name.starts_with("aggregate_")
        || [
            "find_with_expression_and_variables",
            "update_with_pipeline_and_constants",
            "find_and_modify_with_pipeline",
            "explain_of_an_aggregation",
        ]
        .contains(&name)
}

fn memory() -> MemoryStore {
    MemoryStore::new(Sources::seeded(1))
}

#[test]
fn every_case_has_a_name_of_its_own_and_there_are_many() {
    let mut names: Vec<_> = cases().map(|case| case.name).collect();
    assert!(names.len() >= 120, "{} cases", names.len());
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn the_store_in_memory_conforms() {
    let report = conforms(|| Subject::atomic(Arc::new(memory())));
    assert!(report.is_clean() && report.skipped.is_empty(), "{report}");
}

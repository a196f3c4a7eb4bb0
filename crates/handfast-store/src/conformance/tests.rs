use std::sync::Arc;

use bson::rawdoc;

use super::broken::{self, Defect};
use super::{PrefixedStore, Report, Subject, cases, run, run_matching};
use crate::decorator::{Checked, Faulty, Metered, Plan, Resilient};
use crate::{DocumentStore, MemoryStore, Namespace, Sources, StoreExt};

/// Runs the whole suite on several threads.
fn conforms(make: impl Fn() -> Subject) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("runtime");
    runtime.block_on(run(async || make()))
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

#[test]
fn a_checked_store_conforms_without_breaches() {
    let checked = std::sync::Mutex::new(Vec::new());
    let report = conforms(|| {
        let store = Arc::new(Checked::new(memory(), Sources::seeded(2)));
        checked.lock().expect("not poisoned").push(Arc::clone(&store));
        Subject::atomic(store)
    });
    assert!(report.is_clean() && report.skipped.is_empty(), "{report}");
    let breaches: Vec<_> = checked.lock().expect("not poisoned").iter().flat_map(|store| store.breaches()).collect();
    assert_eq!(breaches, Vec::<String>::new());
}

#[test]
fn a_metered_store_conforms() {
    let report = conforms(|| Subject::atomic(Arc::new(Metered::new(memory(), Sources::seeded(2).clock))));
    assert!(report.is_clean() && report.skipped.is_empty(), "{report}");
}

#[test]
fn a_faulty_store_without_faults_conforms() {
    let report = conforms(|| Subject::atomic(Arc::new(Faulty::new(Arc::new(memory()), Plan::none()))));
    assert!(report.is_clean() && report.skipped.is_empty(), "{report}");
}

#[test]
fn decorators_around_each_other_and_around_a_shared_store_conform() {
    let report = conforms(|| {
        let shared: Arc<dyn crate::AtomicStore> = Arc::new(memory());
        let checked = Checked::new(shared, Sources::seeded(2));
        let faulty = Faulty::new(Arc::new(checked), Plan::none());
        Subject::atomic(Arc::new(Metered::new(faulty, Sources::seeded(3).clock)))
    });
    assert!(report.is_clean() && report.skipped.is_empty(), "{report}");
}

#[test]
fn databases_with_a_prefix_conform_and_leave_the_others_unchanged() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("runtime");
    runtime.block_on(async {
        let store = Arc::new(memory());
        // Cases use the first names, and the last one begins like the prefix.
        let others = ["conformance", "zoo", "suite"].map(|database| Namespace::valid(database, "c"));
        for namespace in &others {
            store.insert_one(namespace, rawdoc! { "_id": 1 }).await.expect("inserted");
        }
        let prefixed = PrefixedStore::new(store.clone(), "suite_");
        let report = run(async || {
            prefixed.clear().await.expect("cleared");
            Subject::new(Arc::new(prefixed.clone()))
        })
        .await;
        assert!(report.is_clean() && report.passed.len() >= 270, "{report}");
        prefixed.clear().await.expect("cleared");
        assert_eq!(store.list_databases().await.expect("listed"), ["conformance", "suite", "zoo"]);
        for namespace in &others {
            assert_eq!(store.count_matching(namespace, rawdoc! {}).await.expect("counted"), 1, "{namespace}");
        }
    });
}

#[test]
fn a_store_without_batches_skips_their_cases_and_says_so() {
    let report = conforms(|| Subject::new(Arc::new(memory())));
    assert!(report.is_clean(), "{report}");
    assert!(report.skipped.iter().any(|(name, _)| *name == "commit_applies_all_writes"), "{report}");
}

/// Runs the case that has to catch a defect, a few times if the case depends on chance.
fn catches(defect: Defect) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("runtime");
    (0..5).any(|_| {
        let report =
            runtime.block_on(run_matching(async || broken::subject(defect), |name| name == defect.caught_by()));
        let failed: Vec<_> = report.failed.iter().map(|(name, _)| *name).collect();
        assert_eq!(report.passed.len() + failed.len(), 1, "no case is named {}", defect.caught_by());
        failed == [defect.caught_by()]
    })
}

#[test]
fn every_defect_is_caught_by_its_case() {
    let missed: Vec<_> = Defect::ALL.into_iter().filter(|defect| !catches(*defect)).collect();
    assert_eq!(missed, []);
}

/// A refusal that the subject has not declared is a defect: see `SparseIsRefused`.
#[tokio::test]
async fn a_case_that_meets_what_the_backend_lacks_is_refused_by_its_name() {
    let case = Defect::SparseIsRefused.caught_by();
    let run = async |lacks: &'static str| {
        run_matching(async || broken::subject(Defect::SparseIsRefused).without([lacks]), |name| name == case).await
    };
    assert_eq!(run("sparse indexes").await.refused, [(case, "sparse indexes")]);
    let other = run("partial indexes").await;
    assert_eq!((other.failed.len(), other.refused.len()), (1, 0), "{other}");
    // A case that fails for another reason counts as failed, whatever the backend lacks.
    let make = async || broken::subject(Defect::SparseIsIgnored).without(["sparse indexes"]);
    let ignored = run_matching(make, |name| name == Defect::SparseIsIgnored.caught_by()).await;
    assert_eq!((ignored.failed.len(), ignored.refused.len()), (1, 0), "{ignored}");
}

#[test]
fn a_report_names_what_failed_and_is_not_clean() {
    let nothing = Report::default();
    assert!(!nothing.is_clean(), "a run of no case shows nothing");
    let failed = Report {
        passed: vec!["a"],
        failed: vec![("b", "line 1: no".to_owned())],
        refused: vec![("d", "indexes")],
        skipped: vec![("c", "why")],
    };
    assert!(!failed.is_clean());
    let text = "conformance: 1 passed, 1 failed, 1 refused, 1 skipped\n  failed b: line 1: no\n  refused d: indexes\n  \
                skipped 1: why\n";
    assert_eq!(failed.to_string(), text);
}

#[test]
fn a_resilient_store_conforms() {
    let sources = Sources::seeded(2);
    let report = conforms(|| Subject::new(Arc::new(Resilient::new(Arc::new(memory()), Arc::clone(&sources.ids)))));
    assert!(report.is_clean(), "{report}");
}

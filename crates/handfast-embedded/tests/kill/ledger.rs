//! The parent's part: the acknowledged steps of the child, and the comparison with the store.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::{DocumentStore, Find, Hint, Namespace, StoreExt};

use crate::load::{CheckedStore, DEFINER, INDEX_NAME, WRITERS, counter, counter_id, documents, increment, passing};
use crate::step::{COLLECTION, COUNTER, Facts, INDEX, Step};

/// The signal SIGKILL.
const SIGKILL: i32 = 9;

/// The expected state of each task's part of the store.
#[derive(Default)]
pub(crate) struct Ledger {
    facts: BTreeMap<u64, Facts>,
    /// The steps that were begun and not acknowledged when the process was killed.
    in_doubt: BTreeMap<u64, Step>,
}

impl Ledger {
    /// Reads lines until the child has taken `kill_after` steps, kills it as soon as one of these tasks has taken another, and reads the
    /// rest. Returns the number of steps.
    pub(crate) fn watch(&mut self, mut child: Child, kill_after: u64, tasks: RangeInclusive<u64>) -> u64 {
        let (mut done, mut killed) = (0, false);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let Ok(line) = line else { break };
            let words: Vec<_> = line.split(' ').collect();
            // The test harness prints lines too, and the last line may be incomplete.
            let [said, task, step @ ..] = &words[..] else { continue };
            let (Ok(task), Some(step)) = (task.parse(), Step::parse(step)) else { continue };
            match *said {
                "begin" => drop(self.in_doubt.insert(task, step)),
                "done" => {
                    assert_eq!(self.in_doubt.remove(&task).as_ref(), Some(&step), "task {task}");
                    step.apply(self.facts.entry(task).or_default());
                    done += 1;
                }
                _ => continue,
            }
            if *said == "done" && done > kill_after && tasks.contains(&task) && !killed {
                child.kill().unwrap();
                killed = true;
            }
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "the child ended by itself: see above");
        done
    }

    /// Returns the differences between the store and the expected states. The state of the store is the expected one from now on.
    pub(crate) async fn differences(&mut self, store: &CheckedStore) -> Vec<String> {
        let mut found = facts(store).await;
        let mut differences = Vec::new();
        for task in 0..=DEFINER {
            let before = self.facts.remove(&task).unwrap_or_default();
            let found = found.remove(&task).unwrap_or_default();
            let in_doubt = self.in_doubt.remove(&task);
            differences.extend(compare(&before, in_doubt.as_ref(), &found).map(|text| format!("task {task}: {text}")));
            self.facts.insert(task, found);
        }
        differences.extend(found.into_iter().map(|(task, facts)| format!("nobody's: task {task}: {facts:?}")));
        for namespace in [documents(), passing()] {
            differences.extend(indexes_that_differ(store, &namespace).await);
        }
        differences
    }

    /// Repeats increments, as a driver does that got no answer.
    pub(crate) async fn send_again(&mut self, store: &CheckedStore) {
        for writer in 0..WRITERS {
            let mut known = self.facts.get(&writer).and_then(|facts| facts.get(COUNTER)).copied().unwrap_or(0);
            if known > 0 {
                let again = increment(store, writer, known).await.unwrap();
                assert_eq!(again, known, "counter {writer}: not the first result");
                let Err(late) = increment(store, writer, known - 1).await else {
                    panic!("counter {writer}: a request that another took the place of was done again");
                };
                assert_eq!(late.code(), Code::TransactionTooOld, "{late}");
            }
            known += 1;
            for _ in 0..2 {
                assert_eq!(increment(store, writer, known).await.unwrap(), known, "counter {writer}");
                assert_eq!(counter(store, writer).await, known, "counter {writer} is not exact");
            }
            self.facts.entry(writer).or_default().insert(COUNTER.to_owned(), known);
        }
    }
}

/// Returns a difference, unless the found state is the acknowledged one, with or without the effects of the step in doubt.
fn compare(before: &Facts, in_doubt: Option<&Step>, found: &Facts) -> Option<String> {
    let mut after = before.clone();
    if let Some(step) = in_doubt {
        step.apply(&mut after);
    }
    if found == before || *found == after {
        return None;
    }
    let names: BTreeSet<_> = before.keys().chain(after.keys()).chain(found.keys()).collect();
    let wrong = |name: &&String| ![before.get(*name), after.get(*name)].contains(&found.get(*name));
    let some: Vec<_> = names.into_iter().filter(wrong).take(5).collect();
    if some.is_empty() && in_doubt.is_some_and(Step::is_about_many) {
        return None;
    }
    let shown = |facts: &Facts| some.iter().map(|name| facts.get(*name).copied()).collect::<Vec<_>>();
    let step = in_doubt.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    Some(format!("{some:?} acknowledged {:?}, {step} begun, found {:?}", shown(before), shown(found)))
}

/// Returns what a user sees of each task's part.
async fn facts(store: &CheckedStore) -> BTreeMap<u64, Facts> {
    let mut facts: BTreeMap<u64, Facts> = BTreeMap::new();
    for document in store.find_all(Find::new(documents(), rawdoc! {})).await.unwrap() {
        let id = document.get_str("_id").unwrap();
        let number = document.get_i64("n").unwrap();
        let (task, name) = match (0..WRITERS).find(|writer| counter_id(*writer) == id) {
            Some(writer) => (writer, COUNTER),
            None => (u64::try_from(document.get_i64("writer").unwrap()).unwrap(), id),
        };
        facts.entry(task).or_default().insert(name.to_owned(), number);
    }
    let defined = facts.entry(DEFINER).or_default();
    for document in store.find_all(Find::new(passing(), rawdoc! {})).await.unwrap() {
        defined.insert(document.get_str("_id").unwrap().to_owned(), document.get_i64("n").unwrap());
    }
    let collections = store.list_collections(documents().database()).await.unwrap();
    if collections.iter().any(|info| info.name == passing().collection()) {
        defined.insert(COLLECTION.to_owned(), 1);
    }
    let exists = collections.iter().any(|info| info.name == documents().collection());
    let indexes = if exists { store.list_indexes(&documents()).await.unwrap() } else { Vec::new() };
    if indexes.iter().any(|index| index.spec.name == INDEX_NAME) {
        defined.insert(INDEX.to_owned(), 1);
    }
    facts
}

/// Returns the indexes of a collection that do not lead to each of its documents once.
async fn indexes_that_differ(store: &CheckedStore, namespace: &Namespace) -> Vec<String> {
    let ids = |hint: Option<Hint>| async {
        let projection = rawdoc! { "_id": 1 };
        let found =
            store.find_all(Find { hint, projection, ..Find::new(namespace.clone(), rawdoc! {}) }).await.unwrap();
        let mut ids: Vec<_> = found.iter().map(|document| document.get_str("_id").unwrap().to_owned()).collect();
        ids.sort_unstable();
        ids
    };
    let Ok(indexes) = store.list_indexes(namespace).await else { return Vec::new() };
    let expected = ids(None).await;
    let mut differing = Vec::new();
    for index in indexes {
        let found = ids(Some(Hint::Name(index.spec.name.clone()))).await;
        if found != expected {
            differing.push(format!("{namespace}: {} leads to {} of {}", index.spec.name, found.len(), expected.len()));
        }
    }
    differing
}

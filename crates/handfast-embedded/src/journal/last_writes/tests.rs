use std::path::{Path, PathBuf};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{DocumentStore as _, Insert, StoreExt as _};

use super::{Reader, last_writes, list, written};
use crate::directory::ENGINE;
use crate::journal;
use crate::testing::{namespace, open};

/// The engine's number of the map of documents.
const DOCUMENTS: u64 = 1;

/// Builds a store by three batches: three documents are inserted, one is updated, another one deleted.
async fn written_to() -> (tempfile::TempDir, PathBuf, u64) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = (0..3).map(|n| rawdoc! { "_id": n, "n": 1 }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    store.update_one(&namespace(), rawdoc! { "_id": 1 }, rawdoc! { "$set": { "n": 2 } }).await.unwrap();
    store.delete_one(&namespace(), rawdoc! { "_id": 2 }).await.unwrap();
    store.close().await.unwrap();
    let engine = directory.path().join(ENGINE);
    let last = journal::read(&engine, Default::default()).unwrap().last().unwrap().last.number;
    (directory, engine, last)
}

/// Returns the last writes: documents, or `None` for removed ones.
fn found(engine: &Path, last_batch: u64) -> Vec<Option<RawDocumentBuf>> {
    let writes = last_writes(engine, DOCUMENTS, last_batch, |_| true);
    let document = |value: Vec<u8>| {
        let length = rawdoc! { "_id": 0, "n": 0 }.as_bytes().len();
        RawDocument::from_bytes(&value[value.len() - length..]).unwrap().to_owned()
    };
    writes.into_values().map(|value| value.map(document)).collect()
}

#[tokio::test]
async fn the_last_write_of_each_key_is_found_up_to_a_batch() {
    let (_directory, engine, last) = written_to().await;
    let document = |id: i32, n: i32| Some(rawdoc! { "_id": id, "n": n });
    assert_eq!(found(&engine, last), [document(0, 1), document(1, 2), None]);
    assert_eq!(found(&engine, last - 1), [document(0, 1), document(1, 2), document(2, 1)]);
    assert_eq!(found(&engine, last - 2), [document(0, 1), document(1, 1), document(2, 1)]);
    let all = last_writes(&engine, DOCUMENTS, last, |_| true);
    let (wanted, _) = all.first_key_value().unwrap();
    let first = last_writes(&engine, DOCUMENTS, last, |key| key == wanted);
    assert_eq!(first.len(), 1, "only what is wanted");
}

#[tokio::test]
async fn a_journal_that_ends_too_early_or_has_a_gap_gives_no_states_that_may_be_old() {
    let (_directory, engine, last) = written_to().await;
    assert_eq!(found(&engine, last + 1), []);
    let file = list(&engine).unwrap().pop().unwrap().path;
    let bytes = written(&file).unwrap();
    // `starts` gets the offset of each batch.
    let (mut reader, mut starts) = (Reader { bytes: &bytes, at: 0 }, Vec::new());
    while !reader.at_end() {
        starts.push(reader.at);
        reader.batch().unwrap();
    }
    // Without the batch of the update: earlier writes may be old.
    let [.., changed, removed] = starts[..] else { panic!("{starts:?}") };
    std::fs::write(&file, [&bytes[..changed], &bytes[removed..]].concat()).unwrap();
    assert_eq!(found(&engine, last), [None]);
    // A batch that cannot be read.
    let mut damaged = bytes.clone();
    damaged[changed + 40] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    assert_eq!(found(&engine, last), []);
}

use super::{FjallEngine, Readable as _, guarded, only_number_taken};
use crate::Options;
use crate::engine::{Engine, KEY_BYTES_MAX, Keyspace, Write};
use crate::error::Error;

/// The number of batches: enough for full buffers to be written to data files meanwhile.
const BATCHES: u64 = 400;

#[test]
fn apply_returns_the_sequence_number_of_its_batch() {
    let directory = tempfile::tempdir().unwrap();
    let engine = FjallEngine::open(directory.path(), &Options::small(), None).unwrap();
    let mut numbers = Vec::new();
    for batch in 0..BATCHES {
        let write =
            |keyspace, key: &str, bytes| Write { keyspace, key: key.into(), value: Some(vec![batch as u8; bytes]) };
        let name = format!("document {batch}");
        let writes = vec![write(Keyspace::Documents, &name, 20_000), write(Keyspace::Metadata, "last batch", 8)];
        let number = engine.apply(writes).unwrap();
        assert_eq!(number, engine.sequence_of(Keyspace::Metadata, b"last batch").unwrap(), "batch {batch}");
        assert_eq!(number, engine.sequence_of(Keyspace::Documents, name.as_bytes()).unwrap(), "batch {batch}");
        numbers.push(number);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next));
    assert!(numbers[numbers.len() - 1] - numbers[0] > BATCHES, "its threads took numbers, too");
}

#[test]
fn a_number_is_known_only_if_no_other_was_taken() {
    assert_eq!(only_number_taken(7, 8), Some(7));
    assert_eq!(only_number_taken(7, 9), None);
}

/// After an error about damage an operator looks for a backup, so only a panic while decoding is reported as
/// damage.
#[test]
fn a_panic_is_damage_only_if_a_read_panicked_while_it_decoded() {
    let of_a_read = |text: &'static str| guarded::<()>("reading", || panic!("{text}")).unwrap_err();
    for text in [
        "range end index 70 out of range for slice of length 12",
        "range start index 9 out of range for slice of length 8",
        "index out of bounds: the len is 3 but the index is 3",
        "attempt to subtract with overflow",
        "capacity overflow",
    ] {
        assert!(matches!(of_a_read(text), Error::Corrupt(_)), "{text}");
    }
    let is_internal = |error: Error, text: &str| {
        assert!(matches!(&error, Error::Engine(_)), "{text}: {error:?}");
        let said = handfast_store::Error::from(error);
        assert_eq!(said.code(), handfast_mql::Code::InternalError);
        for part in [text, "nothing says that data is damaged", "handfast check", "report this line"] {
            assert!(said.message().contains(part), "{part} in {said}");
        }
    };
    for text in ["lock is poisoned", "internal error: entered unreachable code", "no message"] {
        is_internal(of_a_read(text), text);
    }
    // A panic of a write says nothing about the stored data.
    let directory = tempfile::tempdir().unwrap();
    let engine = FjallEngine::open(directory.path(), &Options::small(), None).unwrap();
    let text = "index out of bounds: the len is 3 but the index is 3";
    is_internal(engine.writing::<()>("applying a batch", || panic!("{text}")).unwrap_err(), text);
    // A key that is too long makes the engine panic.
    let snapshot = engine.database.snapshot();
    let asked = guarded("reading", || snapshot.get(&engine.keyspaces[0], vec![0; KEY_BYTES_MAX + 1]));
    is_internal(asked.unwrap_err(), "65535");
}

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::Durability;

use super::{Concerns, Deployment};

#[test]
fn journaled_means_as_far_as_a_failover_cannot_reach() {
    let check = |deployment, timeout, durability, expected: RawDocumentBuf| {
        assert_eq!(Concerns::new(deployment, timeout).write(durability), expected, "{deployment:?} {durability:?}");
    };
    use Deployment::{ReplicaSet, Sharded, Standalone};
    use Durability::{Journaled, Memory};
    check(Standalone, Some(9), Journaled, rawdoc! { "w": 1, "j": true });
    check(Standalone, None, Memory, rawdoc! { "w": 1 });
    check(ReplicaSet, None, Journaled, rawdoc! { "w": "majority", "j": true });
    check(ReplicaSet, Some(500), Journaled, rawdoc! { "w": "majority", "j": true, "wtimeout": 500_i64 });
    check(ReplicaSet, None, Memory, rawdoc! { "w": 1 });
    // After a write to several shards no command could wait for all of them.
    check(Sharded, None, Memory, rawdoc! { "w": "majority", "j": true });
    assert!(!Concerns::new(Sharded, None).leaves_undone(Memory));
    assert!(Concerns::new(ReplicaSet, None).leaves_undone(Memory));
}

#[test]
fn reads_of_a_set_are_of_what_a_majority_has() {
    assert_eq!(Concerns::new(Deployment::Standalone, None).read(), None);
    let majority = Some(rawdoc! { "level": "majority" });
    assert_eq!(Concerns::new(Deployment::ReplicaSet, None).read(), majority);
    assert_eq!(Concerns::new(Deployment::Sharded, None).read(), majority);
}

use std::collections::BTreeMap;

use bson::{Bson, doc};

use super::prune::between;
use super::requests::{Requests, visible};
use super::{TreeFields, VersionEvent, VersionState, VersionedTreeOptions};

#[test]
fn the_table_of_states() {
    let events = [
        VersionEvent::RootInserted,
        VersionEvent::GivenUp,
        VersionEvent::Marked,
        VersionEvent::Spared,
        VersionEvent::Condemned,
        VersionEvent::NodesRemoved,
    ];
    let mut arrows = Vec::new();
    for state in VersionState::ALL {
        for event in events {
            arrows.extend(state.after(event).map(|next| format!("{state} -{event:?}-> {next}")));
        }
    }
    let expected = [
        "writing -RootInserted-> committed",
        "writing -GivenUp-> abandoned",
        "committed -Marked-> pruning",
        "pruning -Spared-> committed",
        "pruning -Condemned-> pruned",
        "pruned -NodesRemoved-> cleared",
    ];
    assert_eq!(arrows, expected);
    let readable = VersionState::ALL.map(VersionState::is_readable);
    assert_eq!(readable, [false, true, true, false, false, false]);
}

#[test]
fn names_of_states_can_be_read_back() {
    for state in VersionState::ALL {
        assert_eq!(state.name().parse(), Ok(state));
    }
    assert!("Committed".parse::<VersionState>().is_err());
}

#[test]
fn abandoned_versions_are_left_out() {
    assert_eq!(visible(doc! { "$lte": 4_i64 }, &[]), doc! { "$lte": 4_i64 });
    assert_eq!(visible(doc! { "$lte": 4_i64 }, &[3]), doc! { "$lte": 4_i64, "$nin": [3_i64] });
    let fields = TreeFields::default();
    let requests = Requests { fields: &fields, root: &Bson::from("r") };
    let expected = doc! { "itemId": "b", "version": { "$lte": 4_i64, "$nin": [3_i64] }, "tree": "r" };
    assert_eq!(requests.item_at("b", 4, &[3]), expected);
}

#[test]
fn versions_that_go_lie_between_those_that_stay() {
    let check = |stay: &[i64], go: &[i64], expected: &[((i64, i64), &[i64])]| {
        let expected: BTreeMap<_, _> = expected.iter().map(|(place, go)| (*place, go.to_vec())).collect();
        assert_eq!(between(stay, go.iter().copied()), expected, "{stay:?} {go:?}");
    };
    check(&[9], &[], &[]);
    check(&[9], &[1, 5], &[((0, 9), &[1, 5])]);
    check(&[2, 7, 9], &[1, 3, 5, 8], &[((0, 2), &[1]), ((2, 7), &[3, 5]), ((7, 9), &[8])]);
    check(&[], &[1], &[]);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    use std::time::Duration;
    let good = VersionedTreeOptions::new("r");
    good.check().expect("the settings of the seed");
    for wrong in [
        VersionedTreeOptions { lease: Duration::ZERO, ..good.clone() },
        VersionedTreeOptions { pin_lease: Duration::ZERO, ..good.clone() },
        VersionedTreeOptions { attempts_max: 0, ..good.clone() },
        VersionedTreeOptions::new(Bson::Null),
        VersionedTreeOptions::new(vec![1]),
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

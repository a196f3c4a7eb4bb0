//! The steps on the leases, and the expiry of leases without heartbeats.

use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;

use super::super::row::Timestamp;
use super::{LEASES_MAX, Lease, LeaseId, LeaseWatch, Leases};
use crate::percolator::versioned_document::VersionedDocument as _;

const TTL: Duration = Duration::from_secs(60);
const ONE: LeaseId = [1; 16];
const OTHER: LeaseId = [2; 16];

fn taken(leases: &[(LeaseId, u64)]) -> Leases {
    let mut all = Leases::default().next();
    for (id, at) in leases {
        all.take(*id, Timestamp(*at), TTL).unwrap();
    }
    all
}

#[test]
fn the_oldest_counts() {
    assert_eq!(taken(&[]).snapshots().min(), None);
    assert_eq!(taken(&[(ONE, 7), (OTHER, 5)]).snapshots().min(), Some(Timestamp(5)));
}

#[test]
fn a_lease_keeps_what_is_above_it() {
    let leases = taken(&[(ONE, 7)]);
    let keeps = |id, at| leases.keeps(id, Timestamp(at));
    assert_eq!([keeps(ONE, 6), keeps(ONE, 7), keeps(ONE, 8), keeps(OTHER, 8)], [false, true, true, false]);
}

#[test]
fn a_lease_is_taken_once_and_can_reach_further_back() {
    let mut leases = taken(&[(ONE, 7)]);
    leases.take(ONE, Timestamp(3), TTL).unwrap();
    assert!(leases.is_same(&taken(&[(ONE, 3)])));
}

/// A lease that has released an earlier timestamp does not get it back by a heartbeat.
#[test]
fn a_renewal_reaches_no_further_back() {
    let mut leases = taken(&[(ONE, 7)]);
    assert!(!leases.renew(OTHER, Timestamp(9)));
    assert!(!leases.renew(ONE, Timestamp(6)));
    assert!(leases.is_same(&taken(&[(ONE, 7)])));
    assert!(leases.renew(ONE, Timestamp(9)));
    assert_eq!(leases.snapshots().min(), Some(Timestamp(9)));
}

#[test]
fn a_lease_is_given_up() {
    let mut leases = taken(&[(ONE, 7), (OTHER, 5)]);
    leases.leave(OTHER);
    assert!(leases.is_same(&taken(&[(ONE, 7)])));
}

#[test]
fn only_what_is_as_it_was_seen_is_taken_away() {
    let mut leases = taken(&[(ONE, 7), (OTHER, 5)]);
    let seen = leases.held.clone();
    assert!(leases.renew(ONE, Timestamp(7)));
    leases.remove(&seen);
    assert_eq!(leases.snapshots().min(), Some(Timestamp(7)));
}

#[test]
fn there_is_a_bound() {
    let mut leases = Leases::default();
    for number in 0..LEASES_MAX as u128 {
        leases.held.push(Lease { id: number.to_be_bytes(), at: Timestamp(1), ttl: TTL, signs: 0 });
    }
    assert_eq!(leases.take([0xff; 16], Timestamp(1), TTL).unwrap_err().code(), Code::ExceededMemoryLimit);
    assert!(leases.take(0_u128.to_be_bytes(), Timestamp(1), TTL).is_ok());
    assert!(leases.to_document().as_bytes().len() < 2 * 1024 * 1024);
}

#[test]
fn they_are_read_as_they_were_written() {
    let mut leases = taken(&[(ONE, 7), (OTHER, 5)]);
    leases.renew(ONE, Timestamp(8));
    assert_eq!(Leases::from_document(&leases.to_document()).unwrap(), leases);
    for damaged in
        [rawdoc! { "_id": "leases" }, rawdoc! { "v": 1_i64, "held": [7] }, rawdoc! { "v": -1_i64, "held": [] }]
    {
        assert_eq!(Leases::from_document(&damaged).unwrap_err().code(), Code::InternalError);
    }
}

/// Checks the leases at this time, and returns the number of expired ones.
fn looked(watched: &mut LeaseWatch, leases: &Leases, seconds: u64) -> usize {
    let now = Duration::from_secs(seconds);
    watched.dead(leases, now, now).len()
}

#[test]
fn a_lease_without_a_renewal_for_its_ttl_expires() {
    let (mut watched, mut leases) = (LeaseWatch::default(), taken(&[(ONE, 7)]));
    let looks = [1_000, 1_001, 1_059, 1_060, 1_061].map(|now| looked(&mut watched, &leases, now));
    assert_eq!(looks, [0, 0, 0, 1, 1]);
    // The process of the lease is alive.
    assert!(leases.renew(ONE, Timestamp(7)));
    let looks = [1_062, 1_121, 1_122].map(|now| looked(&mut watched, &leases, now));
    assert_eq!(looks, [0, 0, 1]);
}

/// The time between two reads of the leases counts from the end of the first one to the beginning
/// of the second.
#[test]
fn a_slow_answer_expires_no_lease() {
    let (mut watched, leases) = (LeaseWatch::default(), taken(&[(ONE, 7)]));
    let at = Duration::from_secs;
    assert!(watched.dead(&leases, at(0), at(50)).is_empty());
    assert!(watched.dead(&leases, at(60), at(120)).is_empty());
    assert_eq!(watched.dead(&leases, at(110), at(111)).len(), 1);
}

#[test]
fn what_is_gone_is_not_remembered() {
    let (mut watched, leases) = (LeaseWatch::default(), taken(&[(ONE, 7)]));
    assert_eq!(looked(&mut watched, &leases, 0), 0);
    assert_eq!(looked(&mut watched, &taken(&[]), 30), 0);
    assert_eq!(looked(&mut watched, &leases, 60), 0);
}

//! The comparison of a copy with its main document.

use std::fmt;

use bson::{Bson, Document};
use handfast_store::Namespace;

use super::link::{Link, Values};
use super::record::{Copy, FINAL_VERSION, Main};
use super::{MainState, OnDelete};
use crate::value::{at_path, identical};

/// A difference between a copy and its main document that no change under way will remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// The copy was made from an older version of its main document, or has no version.
    Behind,
    /// The copy has a version that its main document has not reached, because that was restored or made again.
    Ahead,
    /// The copy has the right version and other values.
    Different,
    /// The main document does not exist, and the copy is not as [`OnDelete`] requires.
    Orphan,
    /// The version or the flag of the main document cannot be read. It is unknown what the copy should be, and it is
    /// left unchanged.
    MainUnreadable,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stale::Behind => "behind",
            Stale::Ahead => "ahead",
            Stale::Different => "different",
            Stale::Orphan => "orphan",
            Stale::MainUnreadable => "unreadable",
        })
    }
}

/// A copy that differs from its main document.
#[derive(Clone, Debug, PartialEq)]
pub struct StaleCopy {
    /// The collection of the copy.
    pub target: Namespace,
    /// Its `_id`.
    pub id: Bson,
    /// The `_id` of its main document.
    pub main: Bson,
    /// The kind of difference.
    pub why: Stale,
    /// The values of the copied fields that differ.
    pub found: Document,
    /// The expected values of these fields.
    pub expected: Document,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// The copy equals its main document.
    Equal,
    /// The copy differs, and it or its main document has a flag.
    InFlight,
    Stale(Stale),
}

/// Compares a copy with its main document, which was read after it.
pub(super) fn compare(link: &Link, copy: &Copy, main: Option<&Main>) -> CopyState {
    let stale = match main.filter(|main| main.is_alive()) {
        Some(main) => stale(link, copy, main),
        None => orphan(link, copy),
    };
    // The sweep finds flags by their dates.
    let flagged =
        matches!(copy.syncing, Some(Bson::DateTime(_))) || main.is_some_and(|main| main.state != MainState::Settled);
    match stale {
        None => CopyState::Equal,
        Some(_) if flagged => CopyState::InFlight,
        Some(why) => CopyState::Stale(why),
    }
}

fn stale(link: &Link, copy: &Copy, main: &Main) -> Option<Stale> {
    // Later changes of the main document would not overwrite it, whatever its values are now.
    if copy.version > main.version {
        return Some(Stale::Ahead);
    }
    differences(copy, &link.values(&main.content)).next()?;
    Some(if copy.version < main.version { Stale::Behind } else { Stale::Different })
}

fn orphan(link: &Link, copy: &Copy) -> Option<Stale> {
    let left = match link.on_delete {
        OnDelete::Remove => false,
        OnDelete::Unset | OnDelete::Set(_) | OnDelete::Keep => {
            copy.version == FINAL_VERSION && differences(copy, &link.values_left()).next().is_none()
        }
    };
    if left { None } else { Some(Stale::Orphan) }
}

fn differences<'a>(copy: &'a Copy, values: &'a Values) -> impl Iterator<Item = &'a (String, Option<Bson>)> {
    values.iter().filter(|(path, value)| !identical(at_path(&copy.document, path), value.as_ref()))
}

/// Reports a copy whose main document cannot be read.
pub(super) fn not_comparable(link: &Link, copy: Copy) -> StaleCopy {
    let (target, why) = (link.target.clone(), Stale::MainUnreadable);
    StaleCopy { target, id: copy.id, main: copy.main, why, found: Document::new(), expected: Document::new() }
}

/// Reports the fields that differ.
pub(super) fn report(link: &Link, copy: &Copy, main: Option<&Main>, why: Stale) -> StaleCopy {
    let values = match main.filter(|main| main.is_alive()) {
        Some(main) => link.values(&main.content),
        None => link.values_left(),
    };
    let (mut found, mut expected) = (Document::new(), Document::new());
    for (path, value) in differences(copy, &values) {
        found.extend(at_path(&copy.document, path).map(|value| (path.clone(), value.clone())));
        expected.extend(value.clone().map(|value| (path.clone(), value)));
    }
    let (target, id, main) = (link.target.clone(), copy.id.clone(), copy.main.clone());
    StaleCopy { target, id, main, why, found, expected }
}

use bson::Bson;

use super::{Chain, ChainReport};
use crate::ledger::finding::{Amount, Finding};

fn amount_of(word: &str) -> Amount {
    Amount { balance: word.parse().unwrap(), held: 0 }
}

/// Compares the findings in a chain of offsets with a short text: `balance 3`, `entry 3`, and the place where a
/// rebuild stops. An offset stands for the balance at the next place; `^5` abandons 5 at the next place, `c5` is the
/// cache at the last place, `.` a place without a balance, `|` an empty place.
fn check(given: &str, expected: &str) {
    let (mut chain, mut report, mut place) = (Chain::new(), ChainReport::default(), 0);
    for word in given.split_whitespace() {
        let balance = |place| Finding::Order { account: Bson::Null, seq_id: place, entry: "balance".into() };
        let entry = |place| Finding::Order { account: Bson::Null, seq_id: place, entry: "entry".into() };
        match (word, word.strip_prefix('^'), word.strip_prefix('c')) {
            ("|", _, _) => {
                chain.end(&mut report);
                place += 1;
            }
            (".", _, _) => place += 1,
            (_, Some(amount), _) => chain.give_up(amount_of(amount)),
            (_, _, Some(offset)) => {
                chain.written(place, amount_of(offset), balance(place), |_| None, &mut report);
            }
            _ => {
                place += 1;
                chain.written(place, amount_of(word), balance(place), |_| Some(entry(place)), &mut report);
            }
        }
    }
    chain.end(&mut report);
    let shown = report.findings.iter().map(|finding| match finding {
        Finding::Order { seq_id, entry, .. } => format!("{} {seq_id}", entry.as_str().unwrap()),
        other => panic!("{other}"),
    });
    let stop = report.stop.map(|place| format!("stop {place}"));
    assert_eq!(shown.chain(stop).collect::<Vec<_>>().join(", "), expected, "{given}");
}

#[test]
fn the_fewest_alterations_that_explain_a_chain_are_reported() {
    check("0 0 0 c0", "");
    check("", "");
    // No entry explains the offset.
    check("c5", "balance 0");
    // One balance is wrong.
    check("0 5 0", "balance 2");
    check("5 0 0", "balance 1");
    check("0 0 5 c0", "balance 3");
    check("0 5 9 0", "balance 2, balance 3");
    check("0 5 0 9 0", "balance 2, balance 4");
    check("0 . 5 . 0", "balance 3");
    // One entry is wrong, at any place.
    check("0 5 5 c5", "entry 2, stop 2");
    check("5 5 5", "entry 1, stop 1");
    check("0 0 5 c5", "entry 3, stop 3");
    check("0 . 5 c5", "entry 3, stop 3");
    check("0 5 0 9 9 9", "balance 2, entry 4, stop 4");
    // Two entries are wrong, or an entry and a balance.
    check("0 5 5 9 9", "entry 2, entry 4, stop 2");
    check("0 5 5 c9", "entry 2, stop 2");
    // As many balances as entries explain it, so that it is unknown which are wrong.
    check("0 0 5", "entry 3, stop 3");
    check("0 5 5 0", "entry 2, stop 2");
    check("0 5 9", "entry 2, entry 3, stop 2");
}

#[test]
fn balances_after_an_abandoned_entry_are_recomputed() {
    check("0 ^5 5 5 5 c5", "balance 2, balance 3, balance 4, balance 4");
    check("0 ^5 0 0 0 c0", "");
    // A rebuild was interrupted, or a committer continued from an old balance.
    check("0 ^5 0 0 5 c5", "balance 4, balance 4");
    check("0 ^5 5 5 0 c0", "balance 2, balance 3");
    check("0 ^5 0 0 c0 5 5", "balance 4, balance 5");
    // There are two gaps, the second one after the first was recomputed.
    check("0 ^5 0 ^3 3 3 c3", "balance 3, balance 4, balance 4");
    check("0 ^5 5 ^3 8 8 c8", "balance 2, balance 3, balance 4, balance 4");
    // An abandoned amount explains nothing else, and nothing before it.
    check("0 ^5 5 7 7 c7", "balance 2, entry 3, stop 3");
    check("0 5 5 ^5 9 9", "entry 2, entry 4, stop 2");
}

#[test]
fn nothing_follows_across_an_empty_place() {
    check("0 5 5 | 0 0", "entry 2, stop 2");
    check("0 | 0 5 0", "balance 4");
}

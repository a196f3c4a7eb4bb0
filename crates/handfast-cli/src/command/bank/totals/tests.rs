use handfast_txn::Isolation;

use super::super::Run;
use super::Totals;
use crate::command::bank::arguments::BankMechanism;

#[test]
fn nothing_is_lost_or_made_only_if_all_that_was_promised_holds() {
    let run = Run {
        mechanism: BankMechanism::Transaction,
        accounts: 10,
        workers: 4,
        processes: 1,
        transfers: 100,
        isolation: Isolation::Snapshot,
        lost_replies_per_thousand: 0,
        kills: 0,
        seed: 1,
    };
    let money = |money_out, holds| Totals { money_out, ..Totals::new(&run, "transaction", 1000) }.money(holds);
    assert_eq!(money(1000, true), "money in 1000, money out 1000: nothing is lost or made");
    assert_eq!(money(1000, false), "money in 1000, money out 1000: THE SUM IS RIGHT, AND SOMETHING ELSE IS WRONG");
    for holds in [true, false] {
        assert_eq!(money(990, holds), "money in 1000, money out 990: THE MONEY IS WRONG");
    }
}

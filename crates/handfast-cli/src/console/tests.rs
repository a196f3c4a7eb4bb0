use anyhow::anyhow;

use super::*;

#[test]
fn causes_are_told_once_and_in_one_line() {
    let check = |error: anyhow::Error, expected: &str| assert_eq!(one_line(&chain(&error)), expected);
    check(anyhow!("in use").context("cannot open"), "cannot open: in use");
    check(anyhow!("in use").context("cannot open: in use"), "cannot open: in use");
    check(anyhow!("line 1\n  line 2\n\n").context("cannot read"), "cannot read: line 1; line 2");
}

use super::*;

/// The lines behind those that are findings.
fn behind(kept: usize, count: u64) -> Vec<String> {
    first_findings(&vec!["finding"; kept], count).into_iter().filter(|line| line != "  finding").collect()
}

#[test]
fn json_is_said_to_have_what_it_has() {
    assert_eq!(behind(20, 20), [""; 0]);
    assert_eq!(behind(21, 21), ["  and 1 more: --json has them"]);
    assert_eq!(behind(1000, 1000), ["  and 980 more: --json has them"]);
    let beyond = "  and 34 beyond those: put the first right, and verify again to see them";
    assert_eq!(behind(1000, 1034), ["  and 980 more: --json has them", beyond]);
}

use std::time::Duration;

use serde_json::json;

use super::{Listing, age};

#[test]
fn columns_are_aligned_and_long_cells_cut() {
    let mut listing = Listing::new(&["id", "why"]);
    let (long, last) = ("ä".repeat(70), "b".repeat(70));
    listing.push(["1".to_owned(), "short\nlines".to_owned()], json!(1));
    listing.push([long, last.clone()], json!(2));
    listing.push(["9".to_owned(), String::new()], json!(3));
    let listing = listing.bounded(2);
    assert!(listing.has_more());
    assert_eq!(listing.lines(), [json!(1), json!(2)]);
    let (space, cut) = (" ".repeat(60), "ä".repeat(60));
    assert_eq!(listing.table(), format!("id{space}  why\n1{space}   short lines\n{cut}..  {last}"));
    assert_eq!(Listing::new(&["id"]).table(), "none");
}

#[test]
fn ages_have_two_units() {
    let shown = [(0, "0s"), (950, "950ms"), (61_950, "1m 1s"), (86_400_000 + 3_600_000 + 5_000, "1day 1h")];
    for (millis, text) in shown {
        assert_eq!(age(Duration::from_millis(millis)), text);
    }
}

#[test]
fn a_cell_may_be_longer_than_the_width_of_a_format() {
    let mut listing = Listing::new(&["id"]);
    let long = "x".repeat(70_000);
    listing.push([long.clone()], json!(1));
    assert_eq!(listing.table(), format!("id\n{long}"));
}

use std::time::Duration;

use super::{Comparison, Measurement, Promised as _, measurements, table};
use crate::command::bench::measure::{InterleavedRounds, Round, Series};

/// Returns a series of one round, with this number of operations in one second.
fn series(operations: u64) -> Series {
    let latency = hdrhistogram::Histogram::new_with_max(1_000, 3).unwrap();
    let mut series = Series::default();
    series.push(Round { operations, elapsed: Duration::from_secs(1), processor: Duration::ZERO, latency });
    series
}

fn comparison(rate: u64, promised: Option<f64>) -> Comparison {
    let rounds = InterleavedRounds { subject: series(rate), baseline: series(1_000) };
    Comparison::new("find", "echo", &rounds, promised)
}

#[test]
fn a_missed_promise_is_marked() {
    for (rate, promised, kept, cell) in [
        (600, Some(0.6), Some(true), ">= 0.60 yes 0.0"),
        (599, Some(0.6), Some(false), ">= 0.60 MISSED 0.0"),
        (1, None, None, "1000 0.00 0.0"),
    ] {
        let comparison = comparison(rate, promised);
        assert_eq!(comparison.kept, kept, "{rate}");
        assert_eq!(comparison.missed().is_some(), kept == Some(false), "{rate}");
        let table = table(&[comparison]);
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(cell), "{table}");
        let last = table.lines().last().unwrap();
        let is_named = last == "MISSED  find: 0.599 of echo, at least 0.600 is promised";
        assert_eq!(is_named, kept == Some(false), "{last}");
        let is_slow = table.contains("was built for debugging");
        assert_eq!(is_slow, cfg!(debug_assertions) && kept == Some(false), "{table}");
    }
    for (value, kept) in [(39.9, true), (40.0, false)] {
        let measurement = Measurement::new("idle", value, "MB", 40.0);
        assert_eq!((measurement.kept, measurement.missed().is_none()), (kept, kept), "{value}");
        let table = measurements(&[measurement]);
        assert_eq!(table.contains("MISSED  idle: 40.0 MB, less than 40 MB is promised"), !kept, "{table}");
    }
}

#[test]
fn json_says_which_promises_were_kept() {
    let json = serde_json::to_value([comparison(599, Some(0.6)), comparison(600, Some(0.6)), comparison(1, None)]);
    let kept: Vec<_> = json.unwrap().as_array().unwrap().iter().map(|row| row["kept"].clone()).collect();
    assert_eq!(kept, [serde_json::json!(false), serde_json::json!(true), serde_json::Value::Null]);
}

//! Tables of cases for `granularity` of `$bucketAuto`.

use bson::{Bson, Decimal128, bson, doc};

use super::run;

/// Checks the bounds and counts of buckets.
#[track_caller]
fn check_buckets(
    granularity: &str,
    buckets: i32,
    values: impl IntoIterator<Item = Bson>,
    expected: &[(f64, f64, i32)],
) {
    let documents: Vec<Bson> = values.into_iter().map(|value| Bson::from(doc! { "v": value })).collect();
    let stage = doc! { "$bucketAuto": { "groupBy": "$v", "buckets": buckets, "granularity": granularity } };
    let results = run(bson!([stage]), Bson::from(documents)).unwrap();
    let found: Vec<Bson> = results.into_iter().map(Bson::from).collect();
    let expected: Vec<Bson> = expected
        .iter()
        .map(|(min, max, count)| bson!({ "_id": { "min": *min, "max": *max }, "count": *count }))
        .collect();
    assert_eq!(found, expected, "{granularity}");
}

fn hundred() -> impl Iterator<Item = Bson> {
    (0..100).map(Bson::from)
}

/// The examples of MongoDB's manual.
#[test]
fn bounds_are_preferred_numbers() {
    check_buckets(
        "R20",
        5,
        hundred(),
        &[(0.0, 20.0, 20), (20.0, 40.0, 20), (40.0, 63.0, 23), (63.0, 90.0, 27), (90.0, 100.0, 10)],
    );
    check_buckets(
        "E24",
        5,
        hundred(),
        &[(0.0, 20.0, 20), (20.0, 43.0, 23), (43.0, 68.0, 25), (68.0, 91.0, 23), (91.0, 100.0, 9)],
    );
    check_buckets("1-2-5", 5, hundred(), &[(0.0, 20.0, 20), (20.0, 50.0, 30), (50.0, 100.0, 50)]);
    check_buckets("POWERSOF2", 5, hundred(), &[(0.0, 32.0, 32), (32.0, 64.0, 32), (64.0, 128.0, 36)]);
}

#[test]
fn each_series_has_its_numbers() {
    for (granularity, value, min, max) in [
        ("R5", 2.0, 1.6, 2.5),
        ("R5", 2.5, 1.6, 4.0),
        ("R10", 3.0, 2.5, 3.15),
        ("R40", 1.01, 1.0, 1.06),
        ("R80", 1.01, 1.0, 1.03),
        ("R80", 9.9, 9.75, 10.0),
        ("E6", 1.0, 0.68, 1.5),
        ("E12", 1.0, 0.82, 1.2),
        ("E48", 1.0, 0.953, 1.05),
        ("E96", 1.0, 0.976, 1.02),
        ("E192", 9.2, 9.09, 9.31),
        ("E192", 1.0, 0.988, 1.01),
        ("1-2-5", 0.07, 0.05, 0.1),
        ("1-2-5", 0.1, 0.05, 0.2),
        ("1-2-5", 1e-10, 5e-11, 2e-10),
        ("1-2-5", 7e20, 5e20, 1e21),
        ("POWERSOF2", 1.0, 0.5, 2.0),
        ("POWERSOF2", 0.3, 0.25, 0.5),
        ("POWERSOF2", 1e300, 2_f64.powi(996), 2_f64.powi(997)),
    ] {
        check_buckets(granularity, 1, [Bson::from(value)], &[(min, max, 1)]);
    }
}

#[test]
fn zeros_and_decimals_have_bounds() {
    check_buckets("R5", 1, [bson!(0), bson!(0.0)], &[(0.0, 0.0, 2)]);
    check_buckets("R5", 2, [bson!(0), bson!(0), bson!(0), bson!(3_i64)], &[(0.0, 2.5, 3), (2.5, 4.0, 1)]);
    check_buckets("R5", 3, [], &[]);
    let decimal = |text: &str| Bson::from(text.parse::<Decimal128>().unwrap());
    for (granularity, min, max) in [("1-2-5", "0.05", "0.2"), ("POWERSOF2", "0.0625", "0.125")] {
        let stage = doc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1, "granularity": granularity } };
        let results = run(bson!([stage]), bson!([{ "v": decimal("0.1") }])).unwrap();
        assert_eq!(
            results,
            [doc! { "_id": { "min": decimal(min), "max": decimal(max) }, "count": 1 }],
            "{granularity}"
        );
    }
}

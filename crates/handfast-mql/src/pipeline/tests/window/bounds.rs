use bson::{Bson, DateTime, bson, doc};

use super::{check_function, results};

#[test]
fn windows_of_documents() {
    for (bounds, expected) in [
        (bson!(["unbounded", "unbounded"]), bson!([15, 15, 15, 15, 15])),
        (bson!(["unbounded", "current"]), bson!([1, 3, 6, 10, 15])),
        (bson!(["current", "unbounded"]), bson!([15, 14, 12, 9, 5])),
        (bson!(["current", "current"]), bson!([1, 2, 3, 4, 5])),
        (bson!([0, 0]), bson!([1, 2, 3, 4, 5])),
        (bson!([-1, 1]), bson!([3, 6, 9, 12, 9])),
        (bson!([-1.0, 0_i64]), bson!([1, 3, 5, 7, 9])),
        (bson!(["unbounded", -1]), bson!([0, 1, 3, 6, 10])),
        (bson!([1, "unbounded"]), bson!([14, 12, 9, 5, 0])),
        (bson!(["unbounded", 2]), bson!([6, 10, 15, 15, 15])),
        (bson!([-2, "unbounded"]), bson!([15, 15, 15, 14, 12])),
        (bson!([1, 2]), bson!([5, 7, 9, 5, 0])),
        (bson!([-3, -2]), bson!([0, 0, 1, 3, 5])),
        (bson!([i64::MIN, i64::MAX]), bson!([15, 15, 15, 15, 15])),
        (bson!([i64::MAX, i64::MAX]), bson!([0, 0, 0, 0, 0])),
        (bson!([i64::MIN, i64::MIN]), bson!([0, 0, 0, 0, 0])),
    ] {
        check_function(doc! { "$sum": "$v", "window": { "documents": bounds } }, bson!([1, 2, 3, 4, 5]), expected);
    }
    check_function(doc! { "$sum": "$v", "window": {} }, bson!([1, 2]), bson!([3, 3]));
}

#[test]
fn windows_of_values() {
    let input = bson!([{ "x": 1 }, { "x": 2 }, { "x": 2.0 }, { "x": 5_i64 }, { "x": 7 }, { "x": 20 }]);
    for (bounds, expected) in [
        (bson!(["current", "current"]), bson!([1, 2, 2, 1, 1, 1])),
        (bson!(["unbounded", "current"]), bson!([1, 3, 3, 4, 5, 6])),
        (bson!(["current", "unbounded"]), bson!([6, 5, 5, 3, 2, 1])),
        (bson!(["unbounded", "unbounded"]), bson!([6, 6, 6, 6, 6, 6])),
        (bson!([-2, 3]), bson!([3, 4, 4, 2, 2, 1])),
        (bson!([-0.5, 1.5]), bson!([3, 2, 2, 1, 1, 1])),
        (bson!([3, 6]), bson!([2, 2, 2, 0, 0, 0])),
        (bson!([-10, -1]), bson!([0, 1, 1, 3, 4, 0])),
    ] {
        let stage = doc! {
            "sortBy": { "x": 1 },
            "output": { "r": { "$count": {}, "window": { "range": bounds.clone() } } },
        };
        assert_eq!(Bson::from(results(stage, input.clone())), expected, "{bounds}");
    }
}

#[test]
fn windows_of_dates() {
    let date = |text: &str| DateTime::parse_rfc3339_str(text).unwrap();
    let input = bson!([
        { "x": date("2024-01-31T00:00:00Z") },
        { "x": date("2024-02-01T00:00:00Z") },
        { "x": date("2024-02-29T00:00:00Z") },
        { "x": date("2024-02-29T23:59:59Z") },
        { "x": date("2024-03-31T00:00:00Z") },
    ]);
    for (bounds, unit, expected) in [
        (bson!([-1, 0]), "month", bson!([1, 2, 3, 4, 3])),
        (bson!([0, 1]), "month", bson!([3, 3, 2, 1, 1])),
        (bson!(["current", 1]), "day", bson!([2, 1, 2, 1, 1])),
        (bson!([-1, "current"]), "week", bson!([1, 2, 1, 2, 1])),
        (bson!(["unbounded", -1]), "hour", bson!([0, 1, 2, 3, 4])),
        (bson!([0, "unbounded"]), "year", bson!([5, 4, 3, 2, 1])),
        (bson!([-1, 1]), "quarter", bson!([5, 5, 5, 5, 5])),
    ] {
        let stage = doc! {
            "sortBy": { "x": 1 },
            "output": { "r": { "$count": {}, "window": { "range": bounds.clone(), "unit": unit } } },
        };
        assert_eq!(Bson::from(results(stage, input.clone())), expected, "{bounds} {unit}");
    }
}

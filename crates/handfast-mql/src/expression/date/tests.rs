use bson::{Bson, DateTime, Document, bson, doc};
use proptest::prelude::*;

use super::civil::{Civil, MILLIS_A_DAY, date_of_days, days_of_date};
use crate::expression::testing::{check, check_error, evaluate, fails, gives};

fn at(text: &str) -> DateTime {
    DateTime::parse_rfc3339_str(text).unwrap()
}

#[test]
fn dates_have_parts_in_a_zone() {
    let date = doc! { "d": at("2014-01-01T08:15:39.736Z") };
    for (operator, expected) in [
        ("$year", 2014),
        ("$month", 1),
        ("$dayOfMonth", 1),
        ("$hour", 8),
        ("$minute", 15),
        ("$second", 39),
        ("$millisecond", 736),
        ("$dayOfYear", 1),
        ("$dayOfWeek", 4),
        ("$week", 0),
        ("$isoWeek", 1),
        ("$isoDayOfWeek", 3),
    ] {
        check(doc! { operator: "$d" }, date.clone(), expected);
        check(doc! { operator: ["$d"] }, date.clone(), expected);
        check(doc! { operator: { "date": "$d" } }, date.clone(), expected);
        check(doc! { operator: "$none" }, date.clone(), Bson::Null);
    }
    check(doc! { "$isoWeekYear": "$d" }, doc! { "d": at("2016-01-03T00:00:00Z") }, 2015_i64);
    check(doc! { "$isoWeek": "$d" }, doc! { "d": at("2016-01-03T00:00:00Z") }, 53);
    check(doc! { "$week": "$d" }, doc! { "d": at("2016-12-31T00:00:00Z") }, 52);
    check(doc! { "$dayOfYear": "$d" }, doc! { "d": at("2016-12-31T00:00:00Z") }, 366);
    check(doc! { "$hour": { "date": "$d", "timezone": "+0530" } }, date.clone(), 13);
    check(doc! { "$hour": { "date": "$d", "timezone": "America/New_York" } }, date.clone(), 3);
    check(doc! { "$year": { "date": "$d", "timezone": "$none" } }, date.clone(), Bson::Null);
    // An ObjectId and a timestamp are instants as well.
    gives(doc! { "$year": bson::oid::ObjectId::parse_str("5ab9cbfa31c2ab715d42129e").unwrap() }, 2018);
    // The time of an ObjectId is signed: this is 1901, not 2038.
    let early = bson::oid::ObjectId::parse_str("80000000aaaaaaaaaaaaaaaa").unwrap();
    gives(doc! { "$year": early }, 1901);
    gives(doc! { "$toDate": early }, at("1901-12-13T20:45:52Z"));
    // The names of time zones have one spelling each, and the Z of a date's text is none.
    for zone in ["Z", "z", "utc", "gmt", "europe/berlin", "EUROPE/BERLIN"] {
        check_error(doc! { "$year": { "date": "$$NOW", "timezone": zone } }, doc! {}, 40485);
    }
    for zone in ["UTC", "GMT", "Europe/Berlin", "+00", "Etc/UTC", "Asia/Kolkata"] {
        gives(doc! { "$year": { "date": "$$NOW", "timezone": zone } }, 1970);
    }
    gives(doc! { "$year": bson::Timestamp { time: 0, increment: 1 } }, 1970);
    fails(doc! { "$year": "x" }, 16006, "can't convert from BSON type string to Date");
    check_error(doc! { "$year": { "date": "$d", "x": 1 } }, date.clone(), 40535);
    check_error(doc! { "$year": { "timezone": "UTC" } }, date.clone(), 40539);
    check_error(doc! { "$year": ["$d", 1] }, date.clone(), 40536);
    check_error(doc! { "$year": { "date": "$d", "timezone": 5 } }, date.clone(), 40517);
    check_error(doc! { "$year": { "date": "$d", "timezone": "Nowhere/City" } }, date, 40485);
}

#[test]
fn dates_are_built_from_parts_and_split_into_them() {
    let date = doc! { "d": at("2017-01-01T01:29:09.123Z") };
    check(
        doc! { "$dateToParts": { "date": "$d" } },
        date.clone(),
        doc! { "year": 2017, "month": 1, "day": 1, "hour": 1, "minute": 29, "second": 9, "millisecond": 123 },
    );
    check(
        doc! { "$dateToParts": { "date": "$d", "iso8601": true } },
        date.clone(),
        doc! { "isoWeekYear": 2016, "isoWeek": 52, "isoDayOfWeek": 7, "hour": 1, "minute": 29, "second": 9, "millisecond": 123 },
    );
    check(
        doc! { "$dateToParts": { "date": "$d", "timezone": "America/New_York" } },
        date,
        doc! { "year": 2016, "month": 12, "day": 31, "hour": 20, "minute": 29, "second": 9, "millisecond": 123 },
    );
    gives(doc! { "$dateFromParts": { "year": 2017, "month": 2, "day": 8, "hour": 12 } }, at("2017-02-08T12:00:00Z"));
    gives(
        doc! { "$dateFromParts": { "isoWeekYear": 2017, "isoWeek": 6, "isoDayOfWeek": 3, "hour": 12 } },
        at("2017-02-08T12:00:00Z"),
    );
    gives(
        doc! { "$dateFromParts": { "year": 2016, "month": 12, "day": 31, "hour": 23, "minute": 46, "second": 12, "timezone": "America/New_York" } },
        at("2017-01-01T04:46:12Z"),
    );
    gives(doc! { "$dateFromParts": { "year": 2017, "month": 14, "day": 1 } }, at("2018-02-01T00:00:00Z"));
    gives(doc! { "$dateFromParts": { "year": 2017, "month": 0, "day": 1 } }, at("2016-12-01T00:00:00Z"));
    gives(doc! { "$dateFromParts": { "year": 2017, "day": -1, "second": 61 } }, at("2016-12-30T00:01:01Z"));
    gives(doc! { "$dateFromParts": { "year": null } }, Bson::Null);
    check_error(doc! { "$dateFromParts": 1 }, doc! {}, 40519);
    check_error(doc! { "$dateFromParts": { "x": 1 } }, doc! {}, 40518);
    check_error(doc! { "$dateFromParts": {} }, doc! {}, 40516);
    check_error(doc! { "$dateFromParts": { "year": 2000, "isoWeek": 1 } }, doc! {}, 40489);
    check_error(doc! { "$dateFromParts": { "isoWeekYear": 2000, "month": 1 } }, doc! {}, 40525);
    check_error(doc! { "$dateFromParts": { "year": 1.5 } }, doc! {}, 40515);
    check_error(doc! { "$dateFromParts": { "year": 0 } }, doc! {}, 40523);
    check_error(doc! { "$dateFromParts": { "year": 2000, "month": 40000 } }, doc! {}, 31034);
    check_error(doc! { "$dateToParts": 1 }, doc! {}, 40524);
    check_error(doc! { "$dateToParts": { "x": 1 } }, doc! {}, 40520);
    check_error(doc! { "$dateToParts": {} }, doc! {}, 40522);
    check_error(doc! { "$dateToParts": { "date": "$$NOW", "iso8601": 1 } }, doc! {}, 40521);
}

#[test]
fn dates_are_formatted() {
    let date = doc! { "d": at("2014-01-01T08:15:39.736Z") };
    let format = |format: &str| doc! { "$dateToString": { "format": format, "date": "$d" } };
    check(format("%Y-%m-%d"), date.clone(), "2014-01-01");
    check(format("%H:%M:%S:%L%z"), date.clone(), "08:15:39:736+0000");
    check(format("%Z %j %U %u %V %G %w %% %b %B"), date.clone(), "0 001 00 3 01 2014 4 % Jan January");
    check(doc! { "$dateToString": { "date": "$d" } }, date.clone(), "2014-01-01T08:15:39.736Z");
    check(
        doc! { "$dateToString": { "date": "$d", "timezone": "Europe/Berlin" } },
        date.clone(),
        "2014-01-01T09:15:39.736",
    );
    check(
        doc! { "$dateToString": { "date": "$d", "timezone": "America/New_York", "format": "%H:%M:%S:%L%z" } },
        date.clone(),
        "03:15:39:736-0500",
    );
    check(
        doc! { "$dateToString": { "date": "$d", "timezone": "+04:30", "format": "%z %Z" } },
        date.clone(),
        "+0430 270",
    );
    check(doc! { "$dateToString": { "date": "$none" } }, date.clone(), Bson::Null);
    check(doc! { "$dateToString": { "date": "$none", "onNull": "?" } }, date.clone(), "?");
    check_error(doc! { "$dateToString": 1 }, doc! {}, 18629);
    check_error(doc! { "$dateToString": { "x": 1 } }, doc! {}, 18534);
    check_error(doc! { "$dateToString": {} }, doc! {}, 18628);
    check_error(doc! { "$dateToString": { "date": "$d", "format": 5 } }, date.clone(), 18533);
    check_error(format("%"), date.clone(), 18535);
    check_error(format("%n"), date, 18536);
    check_error(format("%Y"), doc! { "d": DateTime::from_millis(i64::MAX) }, 18537);
}

#[test]
fn dates_are_parsed() {
    let from = |text: &str| doc! { "$dateFromString": { "dateString": text } };
    for (text, expected) in [
        ("2017-02-08T12:10:40.787Z", "2017-02-08T12:10:40.787Z"),
        ("2017-02-08T12:10:40.787", "2017-02-08T12:10:40.787Z"),
        ("2017-02-08", "2017-02-08T00:00:00Z"),
        ("2017-02-08 12:10:40", "2017-02-08T12:10:40Z"),
        ("2017-02-08T12:10:40+0100", "2017-02-08T11:10:40Z"),
        ("2017-02-08T12:10:40 -05:00", "2017-02-08T17:10:40Z"),
        ("2017-02-08T12:10:40 America/New_York", "2017-02-08T17:10:40Z"),
        ("20170208T121040Z", "2017-02-08T12:10:40Z"),
        ("2017-02", "2017-02-01T00:00:00Z"),
        ("2017/02/08", "2017-02-08T00:00:00Z"),
        ("02/08/2017", "2017-02-08T00:00:00Z"),
        ("8 Feb 2017", "2017-02-08T00:00:00Z"),
        ("February 8, 2017 3:05 pm", "2017-02-08T15:05:00Z"),
        ("2017-039", "2017-02-08T00:00:00Z"),
        ("2017-W06-3", "2017-02-08T00:00:00Z"),
        ("2017-02-08T12:10:40.78Z", "2017-02-08T12:10:40.780Z"),
        ("2017-02-08T12:10:40.787999Z", "2017-02-08T12:10:40.787Z"),
    ] {
        gives(from(text), at(expected));
    }
    for text in [
        "",
        "x",
        "2017-02-30",
        "2017-13-01",
        "2017-02-08T25:00",
        "2017-02-08 nonsense",
        "12",
        "2017-02-08T12:10:40+1",
        "2017-02-08T",
        "99999999999999999999",
    ] {
        check_error(from(text), doc! {}, 241);
    }
    let with = |extra: Document| {
        let mut arguments = doc! { "dateString": "2017-02-08T12:10:40.787" };
        arguments.extend(extra);
        doc! { "$dateFromString": arguments }
    };
    gives(with(doc! { "timezone": "America/New_York" }), at("2017-02-08T17:10:40.787Z"));
    gives(with(doc! { "dateString": "08.02.2017", "format": "%d.%m.%Y" }), at("2017-02-08T00:00:00Z"));
    gives(
        with(doc! { "dateString": "06-15-2018 10:05:07.25 +0200", "format": "%m-%d-%Y %H:%M:%S.%L %z" }),
        at("2018-06-15T08:05:07.025Z"),
    );
    gives(with(doc! { "dateString": "2017 06 3", "format": "%G %V %u" }), at("2017-02-08T00:00:00Z"));
    gives(with(doc! { "dateString": "x", "onError": "bad" }), "bad");
    gives(with(doc! { "dateString": 5, "onError": "bad" }), "bad");
    gives(with(doc! { "dateString": null, "onNull": "none" }), "none");
    check_error(with(doc! { "dateString": "2017-02-08Z", "timezone": "UTC" }), doc! {}, 241);
    check_error(with(doc! { "dateString": "2017-02-08x", "format": "%Y-%m-%d" }), doc! {}, 241);
    check_error(with(doc! { "format": "%q" }), doc! {}, 18536);
    check_error(with(doc! { "format": 5 }), doc! {}, 40684);
    check_error(with(doc! { "dateString": 5 }), doc! {}, 241);
    check_error(doc! { "$dateFromString": 1 }, doc! {}, 40540);
    check_error(doc! { "$dateFromString": { "x": 1 } }, doc! {}, 40541);
    check_error(doc! { "$dateFromString": {} }, doc! {}, 40542);
}

#[test]
fn units_are_added_in_a_zone() {
    let add = |start: &str, unit: &str, amount: i32, zone: &str| {
        doc! { "$dateAdd": { "startDate": at(start), "unit": unit, "amount": amount, "timezone": zone } }
    };
    gives(add("2020-12-31T12:10:05Z", "month", 2, "UTC"), at("2021-02-28T12:10:05Z"));
    gives(add("2020-02-29T00:00:00Z", "year", 1, "UTC"), at("2021-02-28T00:00:00Z"));
    gives(add("2020-11-30T00:00:00Z", "quarter", 1, "UTC"), at("2021-02-28T00:00:00Z"));
    gives(add("2020-12-31T00:00:00Z", "week", 1, "UTC"), at("2021-01-07T00:00:00Z"));
    gives(add("2020-12-31T23:00:00Z", "hour", -24, "UTC"), at("2020-12-30T23:00:00Z"));
    gives(add("2020-12-31T23:00:00Z", "millisecond", 1, "UTC"), at("2020-12-31T23:00:00.001Z"));
    // Clocks go forward in Berlin on 2021-03-28: a day later is 23 hours later, and 24 hours later is an hour later
    // on the clock.
    gives(add("2021-03-27T12:00:00Z", "day", 1, "Europe/Berlin"), at("2021-03-28T11:00:00Z"));
    gives(add("2021-03-27T12:00:00Z", "hour", 24, "Europe/Berlin"), at("2021-03-28T12:00:00Z"));
    // A skipped time is moved forward by the length of the gap.
    gives(add("2021-03-27T01:30:00Z", "day", 1, "Europe/Berlin"), at("2021-03-28T01:30:00Z"));
    gives(
        doc! { "$dateSubtract": { "startDate": at("2021-03-31T00:00:00Z"), "unit": "month", "amount": 1 } },
        at("2021-02-28T00:00:00Z"),
    );
    gives(doc! { "$dateAdd": { "startDate": null, "unit": "day", "amount": 1 } }, Bson::Null);
    gives(doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "day", "amount": null } }, Bson::Null);
    check_error(doc! { "$dateAdd": 1 }, doc! {}, 5166400);
    check_error(doc! { "$dateAdd": { "x": 1 } }, doc! {}, 5166401);
    check_error(doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "day" } }, doc! {}, 5166402);
    check_error(doc! { "$dateAdd": { "startDate": "x", "unit": "day", "amount": 1 } }, doc! {}, 5166403);
    check_error(doc! { "$dateAdd": { "startDate": "$$NOW", "unit": 1, "amount": 1 } }, doc! {}, 5439013);
    check_error(doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "day", "amount": 1.5 } }, doc! {}, 5166405);
    check_error(doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "aeon", "amount": 1 } }, doc! {}, 9);
    for unit in ["year", "quarter", "month", "week", "day", "hour", "minute", "second"] {
        let arguments = doc! { "startDate": "$$NOW", "unit": unit, "amount": i64::MAX };
        check_error(doc! { "$dateAdd": arguments.clone() }, doc! {}, 5976500);
        check_error(doc! { "$dateSubtract": arguments }, doc! {}, 5976500);
    }
    check_error(
        doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "millisecond", "amount": i64::MAX } },
        doc! {},
        5166406,
    );
    check_error(
        doc! { "$dateSubtract": { "startDate": "$$NOW", "unit": "day", "amount": i64::MIN } },
        doc! {},
        6045000,
    );
    check_error(doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "year", "amount": 299_999_999 } }, doc! {}, 5166406);
}

#[test]
fn differences_count_boundaries_of_units() {
    let difference = |start: &str, end: &str, unit: &str| doc! { "$dateDiff": { "startDate": at(start), "endDate": at(end), "unit": unit } };
    gives(difference("2020-12-31T23:59:00Z", "2021-01-01T00:01:00Z", "year"), 1_i64);
    gives(difference("2020-12-31T23:59:00Z", "2021-01-01T00:01:00Z", "quarter"), 1_i64);
    gives(difference("2020-12-31T23:59:00Z", "2021-01-01T00:01:00Z", "day"), 1_i64);
    gives(difference("2020-12-31T23:59:00Z", "2021-01-01T00:01:00Z", "hour"), 1_i64);
    gives(difference("2020-12-31T23:59:00Z", "2021-01-01T00:01:00Z", "minute"), 2_i64);
    gives(difference("2021-01-31T00:00:00Z", "2021-01-01T00:00:00Z", "month"), 0_i64);
    gives(difference("2021-01-31T00:00:00Z", "2020-01-01T00:00:00Z", "month"), -12_i64);
    // Weeks begin on Sundays: from Saturday to Sunday the difference is one week.
    gives(difference("2021-01-02T00:00:00Z", "2021-01-03T00:00:00Z", "week"), 1_i64);
    gives(
        doc! { "$dateDiff": { "startDate": at("2021-01-02T00:00:00Z"), "endDate": at("2021-01-03T00:00:00Z"), "unit": "week", "startOfWeek": "Monday" } },
        0_i64,
    );
    gives(
        doc! { "$dateDiff": { "startDate": at("2021-01-01T23:30:00Z"), "endDate": at("2021-01-02T00:30:00Z"), "unit": "day", "timezone": "Europe/Berlin" } },
        0_i64,
    );
    gives(doc! { "$dateDiff": { "startDate": null, "endDate": "$$NOW", "unit": "day" } }, Bson::Null);
    check_error(doc! { "$dateDiff": { "startDate": 1, "endDate": "$$NOW", "unit": "day" } }, doc! {}, 5166307);
    check_error(doc! { "$dateDiff": { "startDate": "$$NOW", "endDate": "$$NOW", "unit": "x" } }, doc! {}, 9);
    check_error(
        doc! { "$dateDiff": { "startDate": "$$NOW", "endDate": "$$NOW", "unit": "week", "startOfWeek": "x" } },
        doc! {},
        5439016,
    );
}

#[test]
fn dates_are_truncated_to_bins() {
    let truncate = |date: &str, unit: &str, extra: Document| {
        let mut arguments = doc! { "date": at(date), "unit": unit };
        arguments.extend(extra);
        doc! { "$dateTrunc": arguments }
    };
    let date = "2021-03-20T11:30:05.123Z";
    gives(truncate(date, "year", doc! {}), at("2021-01-01T00:00:00Z"));
    gives(truncate(date, "quarter", doc! {}), at("2021-01-01T00:00:00Z"));
    gives(truncate(date, "month", doc! {}), at("2021-03-01T00:00:00Z"));
    gives(truncate(date, "week", doc! {}), at("2021-03-14T00:00:00Z"));
    gives(truncate(date, "week", doc! { "startOfWeek": "monday" }), at("2021-03-15T00:00:00Z"));
    gives(truncate(date, "day", doc! {}), at("2021-03-20T00:00:00Z"));
    gives(truncate(date, "hour", doc! { "binSize": 2 }), at("2021-03-20T10:00:00Z"));
    gives(truncate(date, "minute", doc! { "binSize": 15 }), at("2021-03-20T11:30:00Z"));
    gives(truncate(date, "month", doc! { "binSize": 2 }), at("2021-03-01T00:00:00Z"));
    gives(truncate(date, "day", doc! { "timezone": "America/Los_Angeles" }), at("2021-03-20T07:00:00Z"));
    gives(truncate("1999-12-31T23:59:59Z", "hour", doc! { "binSize": 6 }), at("1999-12-31T18:00:00Z"));
    gives(truncate(date, "day", doc! { "binSize": null }), Bson::Null);
    check_error(truncate(date, "day", doc! { "binSize": 0 }), doc! {}, 5439018);
    check_error(truncate(date, "day", doc! { "binSize": 1.5 }), doc! {}, 5439017);
    check_error(doc! { "$dateTrunc": { "date": "x", "unit": "day" } }, doc! {}, 5439012);
    check_error(doc! { "$dateTrunc": { "date": "$$NOW", "unit": 5 } }, doc! {}, 5439013);
    check_error(doc! { "$dateTrunc": { "date": "$$NOW" } }, doc! {}, 5439010);
}

#[test]
fn dates_at_the_ends_of_the_range_do_not_overflow() {
    for millis in [i64::MIN, i64::MAX] {
        for operator in ["$year", "$week", "$isoWeekYear", "$dayOfYear"] {
            evaluate(doc! { operator: DateTime::from_millis(millis) }, doc! {}).unwrap();
        }
        for unit in ["year", "week", "day", "hour"] {
            for zone in ["UTC", "Europe/Berlin", "+14:00", "-12:00"] {
                let date = DateTime::from_millis(millis);
                let _ = evaluate(
                    doc! { "$dateTrunc": { "date": date, "unit": unit, "binSize": i64::MAX, "timezone": zone } },
                    doc! {},
                );
                let _ = evaluate(doc! { "$dateTrunc": { "date": date, "unit": unit, "timezone": zone } }, doc! {});
                let _ = evaluate(
                    doc! { "$dateAdd": { "startDate": date, "unit": unit, "amount": -1, "timezone": zone } },
                    doc! {},
                );
                let _ = evaluate(
                    doc! { "$dateDiff": { "startDate": date, "endDate": "$$NOW", "unit": unit, "timezone": zone } },
                    doc! {},
                );
            }
        }
        let _ = evaluate(doc! { "$toString": DateTime::from_millis(millis) }, doc! {});
    }
}

proptest! {
    #[test]
    fn days_and_dates_are_one_to_one(days in -200_000_000..200_000_000_i64) {
        let (year, month, day) = date_of_days(days);
        prop_assert!((1..=12).contains(&month) && (1..=31).contains(&day));
        prop_assert_eq!(days_of_date(year, month, day), days);
        prop_assert_eq!(date_of_days(days + 1) > (year, month, day), true);
    }

    /// The calendar agrees with an independent one in the range of both.
    #[test]
    fn the_calendar_is_gregorian(millis in -60_000_000_000_000..250_000_000_000_000_i64) {
        let civil = Civil::from_millis(millis);
        let date = jiff::Timestamp::from_millisecond(millis).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
        prop_assert_eq!((civil.year, civil.month, civil.day), (i64::from(date.year()), i64::from(date.month()), i64::from(date.day())));
        prop_assert_eq!(civil.day_of_year(), i64::from(date.day_of_year()));
        let week = date.date().iso_week_date();
        let own = civil.iso_week();
        prop_assert_eq!((own.year, own.week), (i64::from(week.year()), i64::from(week.week())));
        prop_assert_eq!(civil.iso_day_of_week(), i64::from(week.weekday().to_monday_one_offset()));
    }

    #[test]
    fn formatted_dates_are_parsed_back(millis in -62_135_596_800_000..253_402_300_799_999_i64) {
        let date = DateTime::from_millis(millis);
        let text = evaluate(doc! { "$toString": date }, doc! {}).unwrap().unwrap();
        prop_assert_eq!(evaluate(doc! { "$toDate": text }, doc! {}).unwrap(), Some(Bson::DateTime(date)));
    }

    /// A date that is split and built again, in any zone, is the same instant, except for the hour that comes twice
    /// when clocks go back: there the result is the earlier instant.
    #[test]
    fn dates_are_the_same_after_splitting_and_building(millis in 0..4_000_000_000_000_i64, zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "+05:45", "-11:00"])) {
        let mut parts = match evaluate(doc! { "$dateToParts": { "date": DateTime::from_millis(millis), "timezone": zone } }, doc! {}).unwrap() {
            Some(Bson::Document(parts)) => parts,
            other => panic!("{other:?}"),
        };
        parts.insert("timezone", zone);
        let again = evaluate(doc! { "$dateFromParts": parts }, doc! {}).unwrap().unwrap();
        let difference = millis - again.as_datetime().unwrap().timestamp_millis();
        prop_assert!([0, 1_800_000, 3_600_000].contains(&difference), "{}", difference);
    }

    #[test]
    fn a_truncated_date_is_earlier_by_less_than_a_bin(millis in -2_000_000_000_000..4_000_000_000_000_i64, bin in 1..5_i64) {
        let truncated = evaluate(doc! { "$dateTrunc": { "date": DateTime::from_millis(millis), "unit": "day", "binSize": bin } }, doc! {}).unwrap().unwrap();
        let truncated = truncated.as_datetime().unwrap().timestamp_millis();
        prop_assert!(truncated <= millis && millis - truncated < bin * MILLIS_A_DAY);
    }
}

#[test]
fn arrays_of_dates_are_refused() {
    check_error(doc! { "$year": [bson!(["$$NOW"])] }, doc! {}, 16006);
}

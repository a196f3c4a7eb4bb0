//! Days, keys and idle batches while the clock does what clocks do: it passes midnight, skips and repeats hours, and is set forward and back.
//!
//! The clock of the service is injected. That of Redis, by which its keys expire and its batches get old, cannot be set: the tests move what it
//! has recorded.

use std::time::Duration;

use handfast_counters::jiff::civil::{Date, date};
use handfast_counters::jiff::tz::TimeZone;
use handfast_counters::jiff::{Timestamp, ToSpan as _};
use handfast_counters::{Counters, CountersOptions, Owner};
use handfast_store::{Clock as _, Namespace, StoreExt as _};
use tokio_util::sync::CancellationToken;

use crate::world::{World, ad, ads, key, on_both_forms, save_all, total, whole};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The time between two views of a day that is measured.
const STEP: Duration = Duration::from_secs(1_800);

on_both_forms! {
    a_view_belongs_to_the_day_of_its_instant,
    days_have_as_many_hours_as_their_zone_gives_them,
    the_days_of_short_months_and_of_leap_years_are_in_their_places,
    a_clock_that_steps_back_over_midnight_counts_on_both_days,
    a_clock_that_is_a_year_ahead_for_a_while_loses_nothing,
    a_key_is_remembered_while_the_clock_is_set,
    an_idle_batch_is_taken_over_while_the_clock_is_set,
}

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).expect("a time zone")
}

/// Starts a process whose days are those of a time zone.
async fn in_zone(world: &World, name: &str) -> Counters {
    let counters = world.healthy(1).await;
    let options = CountersOptions { time_zone: zone(name), ..counters.options().clone() };
    Counters::new(counters.buffer().clone(), counters.storage().clone(), world.sources(1), options)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("a time")
}

fn set(world: &World, instant: &str) {
    let instant: Timestamp = instant.parse().expect("an instant");
    world.clock.set(bson::DateTime::from_millis(instant.as_millisecond()));
}

async fn view(counters: &Counters) {
    counters.view(ad("7"), 1, None).await.expect("counted");
}

/// The saved views of the days from the first to the last, without those that have none.
async fn days(counters: &Counters, first: Date, last: Date) -> Vec<(Date, u64)> {
    let days = counters.daily(&ad("7"), first, last).await.expect("days");
    days.iter().filter(|day| day.views > 0).map(|day| (day.day, day.views)).collect()
}

/// The 31 numbers of a month, as they are stored.
async fn month(world: &World, month: &str) -> Vec<i64> {
    let namespace = Namespace::new("counters", "days").expect("a name");
    let id = bson::rawdoc! { "_id": { "kind": "ads", "id": "7", "month": month } };
    let document = world.store.find_one(&namespace, id).await.expect("found").expect("a month");
    let numbers = document.get_array("days").expect("days").into_iter();
    numbers.map(|number| number.expect("a number").as_i64().expect("an integer")).collect()
}

async fn a_view_belongs_to_the_day_of_its_instant(world: World) {
    let counters = in_zone(&world, "UTC").await;
    for instant in
        ["2026-12-30T23:59:59.999Z", "2026-12-31T00:00:00Z", "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z"]
    {
        set(&world, instant);
        view(&counters).await;
    }
    save_all(&counters).await;
    let expected = [(date(2026, 12, 30), 1), (date(2026, 12, 31), 2), (date(2027, 1, 1), 1)];
    assert_eq!(days(&counters, date(2026, 12, 1), date(2027, 1, 31)).await, expected);
    let (december, january) = (month(&world, "2026-12").await, month(&world, "2027-01").await);
    assert_eq!((december.len(), &december[29..], january.len(), january[0]), (31, &[1, 2][..], 31, 1));
    // The same instant is on another day elsewhere.
    set(&world, "2027-01-01T00:30:00Z");
    let elsewhere = in_zone(&world, "America/New_York").await;
    view(&elsewhere).await;
    save_all(&elsewhere).await;
    assert_eq!(
        days(&elsewhere, date(2026, 12, 31), date(2027, 1, 1)).await,
        [(date(2026, 12, 31), 3), (date(2027, 1, 1), 1)]
    );
}

/// A zone, a day in it, and the half hours that it has.
const LENGTHS: [(&str, Date, u64); 8] = [
    ("UTC", date(2028, 2, 29), 48),
    ("Europe/Berlin", date(2026, 3, 29), 46),
    ("Europe/Berlin", date(2026, 10, 25), 50),
    // Its clocks are set by half an hour.
    ("Australia/Lord_Howe", date(2026, 10, 4), 47),
    ("Australia/Lord_Howe", date(2026, 4, 5), 49),
    // This day began at one o'clock.
    ("America/Sao_Paulo", date(2018, 11, 4), 46),
    // Samoa went over to the other side of the date line, and had no such day.
    ("Pacific/Apia", date(2011, 12, 30), 0),
    // It is never a whole hour from others.
    ("Asia/Kathmandu", date(2026, 11, 30), 48),
];

async fn days_have_as_many_hours_as_their_zone_gives_them(world: World) {
    for (number, (name, day, half_hours)) in LENGTHS.into_iter().enumerate() {
        let item = ad(&number.to_string());
        let counters = in_zone(&world, name).await;
        let (before, after) = (day.saturating_sub(1.day()), day.saturating_add(1.day()));
        let noon = |day: Date| day.at(12, 0, 0, 0).to_zoned(zone(name)).expect("a time").timestamp();
        set(&world, &noon(before).to_string());
        let mut views = 0_u64;
        while world.clock.now().timestamp_millis() < noon(after).as_millisecond() {
            counters.view(item.clone(), 1, None).await.expect("counted");
            views += 1;
            if views.is_multiple_of(40) {
                save_all(&counters).await;
            }
            // Only the time of day: for Redis, no time has passed.
            world.clock.advance(STEP);
        }
        save_all(&counters).await;
        let found = counters.daily(&item, before, after).await.expect("days");
        let found: Vec<u64> = found.iter().map(|day| day.views).collect();
        assert_eq!(found, [24, half_hours, 24], "{name} {day}");
        assert_eq!(found.iter().sum::<u64>(), views, "{name} {day}");
    }
}

async fn the_days_of_short_months_and_of_leap_years_are_in_their_places(world: World) {
    let counters = in_zone(&world, "UTC").await;
    // 2100 is no leap year, 2000 was one.
    for (year, has_leap_day) in [(2027, false), (2028, true), (2100, false), (2000, true)] {
        set(&world, &format!("{year}-02-28T12:00:00Z"));
        view(&counters).await;
        world.clock.advance(DAY);
        view(&counters).await;
        view(&counters).await;
        save_all(&counters).await;
        let next = if has_leap_day { date(year, 2, 29) } else { date(year, 3, 1) };
        assert_eq!(days(&counters, date(year, 2, 1), date(year, 3, 31)).await, [(date(year, 2, 28), 1), (next, 2)]);
        let february = month(&world, &format!("{year}-02")).await;
        let expected: &[i64] = if has_leap_day { &[1, 2, 0, 0] } else { &[1, 0, 0, 0] };
        assert_eq!((february.len(), &february[27..]), (31, expected));
    }
}

async fn a_clock_that_steps_back_over_midnight_counts_on_both_days(world: World) {
    let counters = in_zone(&world, "Europe/Berlin").await;
    // Midnight in Berlin, at a change of the month.
    set(&world, "2026-11-30T23:00:01Z");
    view(&counters).await;
    save_all(&counters).await;
    set(&world, "2026-11-30T22:59:58Z");
    view(&counters).await;
    world.clock.advance(Duration::from_secs(2));
    view(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(3));
    save_all(&counters).await;
    assert_eq!(
        days(&counters, date(2026, 11, 1), date(2026, 12, 31)).await,
        [(date(2026, 11, 30), 1), (date(2026, 12, 1), 2)]
    );
    assert_eq!(total(&counters, "7").await, whole(3));
}

async fn a_clock_that_is_a_year_ahead_for_a_while_loses_nothing(world: World) {
    let counters = in_zone(&world, "UTC").await;
    set(&world, "2026-11-30T12:00:00Z");
    view(&counters).await;
    set(&world, "2027-11-30T12:00:00Z");
    view(&counters).await;
    save_all(&counters).await;
    set(&world, "2026-11-30T12:00:01Z");
    view(&counters).await;
    drop(counters);
    // The process that follows reads the queue back.
    let restarted = in_zone(&world, "UTC").await;
    assert_eq!(total(&restarted, "7").await, whole(3));
    save_all(&restarted).await;
    let expected = [(date(2026, 11, 30), 2), (date(2027, 11, 30), 1)];
    assert_eq!(days(&restarted, date(2026, 1, 1), date(2027, 12, 31)).await, expected);
    assert_eq!(restarted.today().expect("a day"), date(2026, 11, 30));
}

async fn a_key_is_remembered_while_the_clock_is_set(world: World) {
    let counters = in_zone(&world, "UTC").await;
    set(&world, "2026-11-30T00:00:01Z");
    counters.view(ad("7"), 1, key("a")).await.expect("counted");
    for instant in ["2026-11-29T23:59:59Z", "2025-11-30T12:00:00Z", "2027-11-30T12:00:00Z", "2026-11-30T12:00:00Z"] {
        set(&world, instant);
        assert_eq!(counters.view(ad("7"), 1, key("a")).await.expect("answered"), whole(1), "{instant}");
    }
    save_all(&counters).await;
    set(&world, "2025-11-30T12:00:00Z");
    drop(counters);
    let restarted = in_zone(&world, "UTC").await;
    assert_eq!(restarted.view(ad("7"), 1, key("a")).await.expect("answered"), whole(1), "also after a restart");
    world.advance(DAY).await;
    assert_eq!(restarted.view(ad("7"), 1, key("a")).await.expect("counted"), whole(2), "for a day that has passed");
}

async fn an_idle_batch_is_taken_over_while_the_clock_is_set(world: World) {
    let counters = in_zone(&world, "UTC").await;
    let (buffer, sources) = (counters.buffer(), world.sources(5));
    let (dead, other) = (Owner::new(&sources), Owner::new(&sources));
    view(&counters).await;
    let batch = buffer.claim(&ads(), &dead, 10).await.expect("claimed").expect("a batch");
    for instant in ["2020-11-30T12:00:00Z", "2036-11-30T12:00:00Z"] {
        set(&world, instant);
        assert!(!buffer.take_over(&ads(), &other, HOUR).await.expect("asked"), "not idle at {instant}");
    }
    set(&world, "2020-11-30T12:00:00Z");
    world.clock.advance(HOUR);
    if let Some(server) = &world.redis {
        server.move_batches(-millis(HOUR)).await;
    }
    assert!(buffer.take_over(&ads(), &other, HOUR).await.expect("asked"), "idle for an hour");
    assert_eq!(buffer.claim(&ads(), &other, 10).await.expect("claimed"), Some(batch));
    save_all(&Counters::new(buffer.clone(), counters.storage().clone(), sources, counters.options().clone())).await;
    assert_eq!(total(&counters, "7").await, whole(1));
}

/// The clock of Redis was a year ahead when a batch was claimed, or another machine with another clock is the master now.
#[tokio::test]
async fn ext_redis_a_batch_that_was_claimed_in_the_future_does_not_wait_for_it() {
    let Some(world) = World::redis().await else { return };
    let counters = world.healthy(1).await;
    let (buffer, sources) = (counters.buffer(), world.sources(5));
    view(&counters).await;
    buffer.claim(&ads(), &Owner::new(&sources), 10).await.expect("claimed").expect("a batch");
    let other = Owner::new(&sources);
    world.server().move_batches(60_000).await;
    assert!(!buffer.take_over(&ads(), &other, HOUR).await.expect("asked"), "clocks differ by seconds");
    world.server().move_batches(millis(365 * DAY)).await;
    assert!(buffer.take_over(&ads(), &other, HOUR).await.expect("asked"));
    assert!(!buffer.take_over(&ads(), &Owner::new(&sources), HOUR).await.expect("asked"), "it is the other's now");
}

#[tokio::test]
async fn a_clock_outside_of_the_calendar_is_an_error() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    world.clock.set(bson::DateTime::MAX);
    let error = counters.view(ad("7"), 1, None).await.expect_err("no date");
    assert!(error.to_string().contains("the clock shows no date"), "{error}");
    set(&world, "2026-11-30T12:00:00Z");
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(1));
}

/// A pass begins when there are ten batches of views, however long the interval is.
#[tokio::test]
async fn many_views_are_saved_before_the_interval_is_over() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    let options = CountersOptions { flush_interval: DAY, batch_events: 2, ..counters.options().clone() };
    let counters = Counters::new(counters.buffer().clone(), counters.storage().clone(), world.sources(1), options);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (counters, stop) = (counters.clone(), stop.clone());
        async move { counters.run(stop).await }
    });
    // The first pass is at once.
    while counters.saved().last_pass.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..19 {
        counters.view(ad("a"), 1, None).await.expect("counted");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(counters.saved().views, 0, "nineteen are not ten batches");
    counters.view(ad("a"), 1, None).await.expect("counted");
    while counters.saved().views < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    running.await.expect("no panic").expect("saved");
}

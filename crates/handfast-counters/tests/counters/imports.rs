//! Imports: each line is added once, whatever fails meanwhile, and a file with other lines is refused.

use handfast_counters::jiff::civil::{Date, date};
use handfast_counters::{
    Batch, COUNTED_TOTAL_MAX, Change, Counters, Error, Event, Figure, IMPORT_FIGURES_MAX, Import, ImportName,
    ImportSaved, Kind, LineState, Result, TOTAL_MAX, VIEWS_MAX,
};

use crate::world::{World, ad, ads, first_day, save_all, total, whole};

/// The figures of one transaction in these tests.
const BATCH: usize = 3;

/// A line of a file: an id, a day if its views have one, and the views.
pub(crate) type Line = (&'static str, Option<Date>, u64);

/// A file of two items: views without days, of two months, and of the same day twice.
pub(crate) fn file() -> Vec<Line> {
    let (last, first) = (date(2026, 9, 30), date(2026, 10, 1));
    vec![
        ("a", None, 1_000),
        ("a", Some(last), 5),
        ("b", Some(first), 7),
        ("a", Some(last), 20),
        ("b", None, 300),
        ("a", Some(first), 0),
        ("a", Some(date(2026, 11, 30)), 100),
    ]
}

pub(crate) async fn begin(counters: &Counters, name: &str) -> Result<Import> {
    counters.storage().begin_import(ImportName::new(name).expect("a name")).await
}

/// Adds the lines that were not added before, as a program does.
pub(crate) async fn add(counters: &Counters, name: &str, lines: &[Line]) -> Result<ImportSaved> {
    let mut import = begin(counters, name).await?;
    for (index, (id, day, views)) in lines.iter().enumerate() {
        match import.read(&format!("{id},{day:?},{views}")) {
            LineState::New => import.add(Figure { item: ad(id), day: *day, views: *views }),
            LineState::Known => import.add_known(ad(id)),
            LineState::Changed => panic!("line {} has changed", index + 1),
        }
        if import.batch_len() >= BATCH {
            let saved = counters.save_import(&mut import).await?;
            if saved != ImportSaved::Added {
                return Ok(saved);
            }
        }
    }
    counters.save_import(&mut import).await
}

/// Checks that the lines of the file were added exactly once.
pub(crate) async fn check_file(counters: &Counters) {
    save_all(counters).await;
    assert_eq!([total(counters, "a").await, total(counters, "b").await], [whole(1_125), whole(307)]);
    let bases = [counters.storage().base(&ad("a")).await, counters.storage().base(&ad("b")).await];
    assert_eq!(bases.map(|base| base.expect("a base")), [1_000, 300]);
    let days = counters.daily(&ad("a"), date(2026, 9, 1), date(2026, 11, 30)).await.expect("days");
    let days: Vec<_> = days.iter().filter(|day| day.views > 0).map(|day| (day.day, day.views)).collect();
    assert_eq!(days, [(date(2026, 9, 30), 25), (date(2026, 11, 30), 100)]);
}

#[tokio::test]
async fn lines_are_added_once() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    let lines = file();
    for _ in 0..2 {
        assert_eq!(add(&counters, "may", &lines).await.expect("saved"), ImportSaved::Added);
        check_file(&counters).await;
    }
    // A file that has grown goes on behind the lines that were added, and another name adds everything again.
    let mut longer = lines.clone();
    longer.push(("b", None, 1));
    add(&counters, "may", &longer).await.expect("saved");
    assert_eq!(counters.storage().totals(&ads(), &[ad("b").id]).await.expect("totals"), [308]);
    add(&counters, "june", &lines).await.expect("saved");
    assert_eq!(counters.storage().totals(&ads(), &[ad("b").id]).await.expect("totals"), [308 + 307]);
    save_all(&counters).await;
}

#[tokio::test]
async fn figures_are_added_to_those_that_were_counted() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    counters.view(ad("a"), 3, None).await.expect("counted");
    counters.flush().await.expect("saved");
    add(&counters, "may", &[("a", Some(first_day()), 10), ("a", None, 100)]).await.expect("saved");
    drop(counters);
    let restarted = world.healthy(2).await;
    assert_eq!(total(&restarted, "a").await, whole(113));
    assert_eq!(restarted.view(ad("a"), 1, None).await.expect("counted"), whole(114));
    save_all(&restarted).await;
    let days = restarted.daily(&ad("a"), first_day(), first_day()).await.expect("days");
    assert_eq!(days[0].views, 14);
    restarted.delete(&ad("a"), None).await.expect("deleted");
    save_all(&restarted).await;
    assert_eq!(restarted.storage().base(&ad("a")).await.expect("a base"), 0, "a deletion drops the base as well");
}

#[tokio::test]
async fn a_file_with_other_lines_is_refused() {
    let counters = World::embedded().healthy(1).await;
    let lines = ["one", "two", "three"];
    let mut import = begin(&counters, "may").await.expect("an import");
    for line in lines {
        assert_eq!(import.read(line), LineState::New);
    }
    counters.save_import(&mut import).await.expect("saved");
    assert!(import.has_caught_up());
    let check = async |lines: &[&str], expected: &[LineState]| {
        let mut import = begin(&counters, "may").await.expect("an import");
        let states: Vec<_> = lines.iter().map(|line| import.read(line)).collect();
        assert_eq!(states, expected, "{lines:?}");
        import.has_caught_up()
    };
    let (known, new, changed) = (LineState::Known, LineState::New, LineState::Changed);
    assert!(check(&["one", "two", "three", "four"], &[known, known, known, new]).await);
    assert!(check(&["one", "TWO", "three"], &[known, known, changed]).await);
    assert!(check(&["two", "one", "three"], &[known, known, changed]).await);
    assert!(!check(&["one", "two"], &[known, known]).await, "a shorter file");
}

#[tokio::test]
async fn a_file_that_begins_with_an_earlier_import_is_recognised() {
    let counters = World::embedded().healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    let beginning = async |lines: &[Line]| {
        let mut earlier = counters.storage().earlier_imports().await.expect("imports");
        let mut found = None;
        for (index, (id, day, views)) in lines.iter().enumerate() {
            assert_eq!(earlier.any_beyond(), index < file().len());
            found = found.or(earlier.read(&format!("{id},{day:?},{views}"), true).cloned());
        }
        found
    };
    let mut longer = file();
    longer.push(("b", None, 1));
    let found = beginning(&longer).await.expect("the import");
    assert_eq!((found.name.as_str(), found.position.lines, found.figures, found.views), ("may", 7, 7, 1_432));
    longer[2].2 += 1;
    assert_eq!(beginning(&longer).await, None);
}

/// The lines of a file that an import of seven lines has added, as far as the record of the import tells.
#[tokio::test]
async fn a_file_that_shares_its_beginning_with_an_earlier_import_is_recognised() {
    let counters = World::embedded().healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    let shared = async |lines: &[Line], figures_from: usize| {
        let mut earlier = counters.storage().earlier_imports().await.expect("imports");
        for (index, (id, day, views)) in lines.iter().enumerate() {
            earlier.read(&format!("{id},{day:?},{views}"), index >= figures_from);
        }
        earlier.shared_beginning().map(|shared| (shared.import.name.as_str().to_owned(), shared.lines))
    };
    let file = file();
    for (lines, expected) in [(1, 1), (2, 2), (3, 2), (4, 4), (6, 4), (7, 4)] {
        assert_eq!(shared(&file[..lines], 0).await, Some(("may".to_owned(), expected)), "{lines} lines");
    }
    // Another line in its place.
    for (changed, expected) in [(0, None), (1, None), (2, Some(2)), (3, Some(2)), (4, Some(4)), (6, Some(4))] {
        let mut other = file.clone();
        other[changed].2 += 1;
        assert_eq!(shared(&other, 0).await.map(|(_, lines)| lines), expected, "line {changed}");
    }
    let mut short = file[..3].to_vec();
    short[2].2 += 1;
    assert_eq!(shared(&short, 0).await.map(|(_, lines)| lines), Some(2), "two of three lines");
    // Whatever their lengths are, a half of the lines of the shorter one is recognised.
    for shorter in 2..=7 {
        let mut other = file[..shorter].to_vec();
        other[shorter.div_ceil(2)..].iter_mut().for_each(|line| line.2 += 1);
        assert!(shared(&other, 0).await.is_some(), "a half of {shorter} lines");
    }
    assert_eq!(shared(&file[..1], 1).await, None, "a header is the beginning of many files");
}

#[tokio::test]
async fn a_total_above_the_largest_one_is_refused_with_its_batch() {
    let counters = World::embedded().healthy(1).await;
    let lines =
        [("a", None, TOTAL_MAX - 1), ("b", None, 0), ("b", None, 1), ("b", None, 1), ("a", Some(first_day()), 2)];
    let refused = add(&counters, "may", &lines).await.expect("refused");
    assert_eq!(refused, ImportSaved::TooLarge { figure: 1 });
    let totals = counters.storage().totals(&ads(), &[ad("a").id, ad("b").id]).await.expect("totals");
    assert_eq!(totals, [TOTAL_MAX - 1, 1], "the batch before it was added");
    let refused = counters.view(ad("a"), 1, None).await.expect_err("there is no place for it");
    assert!(matches!(refused, Error::TotalTooLarge { views } if views == TOTAL_MAX - 1), "{refused}");
    save_all(&counters).await;
}

/// Returns the saved figures of all items, as an export has them.
async fn exported(counters: &Counters) -> Vec<Figure> {
    let mut figures = counters.storage().figures(None).await.expect("figures");
    let mut all = Vec::new();
    while let Some(of_item) = figures.next().await.expect("an item") {
        all.extend(of_item);
    }
    all
}

#[tokio::test]
async fn what_is_counted_without_the_store_can_be_imported_all_the_same() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    add(&counters, "may", &[("a", None, COUNTED_TOTAL_MAX)]).await.expect("added");
    // Views of a process that did not know the total, as its store was away.
    let views = Change::Views { views: VIEWS_MAX, day: first_day() };
    let event = |number| Event { number, id: ad("a").id, change: views.clone() };
    let batch = Batch { kind: ads(), events: (1..=50).map(event).collect() };
    counters.storage().save(&batch).await.expect("saved");
    let figures = exported(&counters).await;
    let elsewhere = World::embedded().healthy(2).await;
    let mut import = begin(&elsewhere, "export").await.expect("an import");
    for (line, figure) in figures.iter().enumerate() {
        assert_eq!(import.read(&line.to_string()), LineState::New);
        import.add(figure.clone());
    }
    assert_eq!(elsewhere.save_import(&mut import).await.expect("saved"), ImportSaved::Added);
    assert_eq!(total(&elsewhere, "a").await, whole(COUNTED_TOTAL_MAX + 50 * u64::from(VIEWS_MAX)));
    assert_eq!(exported(&elsewhere).await, figures);
}

#[tokio::test]
async fn a_batch_has_a_limit() {
    let counters = World::embedded().healthy(1).await;
    let mut import = begin(&counters, "may").await.expect("an import");
    for _ in 0..=IMPORT_FIGURES_MAX {
        import.read("line");
        import.add(Figure { item: ad("a"), day: None, views: 1 });
    }
    let refused = counters.save_import(&mut import).await.expect_err("too many").to_string();
    assert_eq!(refused, "10001 figures are more than 10000, the limit of a batch");
}

#[tokio::test]
async fn of_two_processes_with_one_import_each_line_is_added_by_one() {
    let world = World::embedded();
    let (one, two) = (world.healthy(1).await, world.healthy(2).await);
    let mut first = begin(&one, "may").await.expect("an import");
    let mut second = begin(&two, "may").await.expect("an import");
    for import in [&mut first, &mut second] {
        import.read("one");
        import.add(Figure { item: ad("a"), day: None, views: 1 });
    }
    assert_eq!(one.save_import(&mut first).await.expect("saved"), ImportSaved::Added);
    assert_eq!(two.save_import(&mut second).await.expect("saved"), ImportSaved::Added, "the same batch was added");
    second.read("two");
    second.add(Figure { item: ad("a"), day: None, views: 10 });
    assert_eq!(two.save_import(&mut second).await.expect("saved"), ImportSaved::Added);
    for line in ["two", "three"] {
        first.read(line);
        first.add(Figure { item: ad("a"), day: None, views: 10 });
    }
    assert_eq!(one.save_import(&mut first).await.expect("an answer"), ImportSaved::Elsewhere);
    save_all(&one).await;
    assert_eq!(one.storage().totals(&ads(), &[ad("a").id]).await.expect("totals"), [11]);
}

#[tokio::test]
async fn an_export_has_every_figure_in_order() {
    let counters = World::embedded().healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    add(&counters, "june", &[("~~~", Some(first_day()), 4), ("zero", None, 0)]).await.expect("saved");
    counters.view(ad("waits"), 1, None).await.expect("counted");
    let exported = async |kind: Option<&Kind>| {
        let mut figures = counters.storage().figures(kind).await.expect("figures");
        let mut all = Vec::new();
        while let Some(of_item) = figures.next().await.expect("figures") {
            all.extend(of_item.into_iter().map(|Figure { item, day, views }| (item.to_string(), day, views)));
        }
        all
    };
    let expected = [
        ("ads/a", None, 1_000),
        ("ads/a", Some(date(2026, 9, 30)), 25),
        ("ads/a", Some(date(2026, 11, 30)), 100),
        ("ads/b", None, 300),
        ("ads/b", Some(date(2026, 10, 1)), 7),
        ("ads/~~~", Some(first_day()), 4),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(item, day, views)| (item.to_owned(), day, views)).collect();
    assert_eq!(exported(None).await, expected);
    assert_eq!(exported(Some(&ads())).await, expected, "a kind has all its items");
    assert_eq!(exported(Some(&Kind::new("ad").expect("a kind"))).await, []);
    let kinds = counters.storage().item_kinds().await.expect("kinds");
    assert_eq!(kinds, [ads()]);
}

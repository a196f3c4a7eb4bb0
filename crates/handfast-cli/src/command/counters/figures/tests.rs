use handfast_counters::jiff::civil::date;
use handfast_counters::{Figure, Item, TOTAL_MAX};

use super::{FigureFormat, FigureReader};

fn figure(id: &str, day: Option<i8>, views: u64) -> Figure {
    let item = Item::new("ads", id).expect("an item");
    Figure { item, day: day.map(|day| date(2026, 11, day)), views }
}

/// Reads lines; the results of those without a header.
fn read(format: FigureFormat, lines: &[&str]) -> Vec<Result<Figure, String>> {
    let mut reader = FigureReader::new(format);
    lines.iter().filter_map(|line| reader.read(line).transpose()).collect()
}

#[test]
fn lines_are_read_as_they_are_written() {
    let figures = [figure("a", None, 1_200), figure("a", Some(30), 5), figure("-._~:", Some(1), TOTAL_MAX)];
    for format in [FigureFormat::Csv, FigureFormat::Jsonl] {
        let mut text = format.header().to_owned();
        text.extend(figures.iter().map(|figure| format.line(figure)));
        let lines: Vec<&str> = text.lines().collect();
        let expected: Vec<_> = figures.iter().cloned().map(Ok).collect();
        assert_eq!(read(format, &lines), expected, "{text}");
    }
    assert_eq!(FigureFormat::Csv.line(&figures[0]), "ads,a,1200,,\n");
    assert_eq!(FigureFormat::Csv.line(&figures[1]), "ads,a,,2026-11-30,5\n");
    assert_eq!(FigureFormat::Jsonl.line(&figures[0]), "{\"kind\":\"ads\",\"id\":\"a\",\"total\":1200}\n");
    let of_day = "{\"kind\":\"ads\",\"id\":\"a\",\"day\":\"2026-11-30\",\"views\":5}\n";
    assert_eq!(FigureFormat::Jsonl.line(&figures[1]), of_day);
}

#[test]
fn a_csv_file_has_the_columns_that_it_needs_in_any_order() {
    let check = |header: &str, line: &str, expected: Figure| {
        assert_eq!(read(FigureFormat::Csv, &[header, line]), [Ok(expected)]);
    };
    check("kind,id,total", "ads,a,7", figure("a", None, 7));
    check("total,id,kind", "7,a,ads", figure("a", None, 7));
    check("kind,id,day,views", "ads,a,2026-11-30,0", figure("a", Some(30), 0));
    check(" views , day,\"id\",kind", "5,2026-11-30, a ,\"ads\"", figure("a", Some(30), 5));
}

#[test]
fn a_wrong_header_is_named() {
    let check = |header: &str, expected: &str| {
        let error = read(FigureFormat::Csv, &[header]).remove(0).expect_err("wrong");
        assert!(error.contains(expected), "{header}: {error}");
    };
    check("ads,7,5", "the column 'ads' is unknown: the header has kind, id, total, day, views");
    check("kind,id,total,total", "the column 'total' is there twice");
    check("kind,total", "the header has no column 'id'");
    check("kind,id", "the header has no column 'total', and no columns 'day' and 'views'");
    check("kind,id,day", "no column 'views'");
    check("kind,id,total,views", "no column 'day'");
}

#[test]
fn a_wrong_line_of_csv_is_named() {
    let check = |line: &str, expected: &str| {
        let error = read(FigureFormat::Csv, &[FigureFormat::Csv.header().trim_end(), line]).remove(0);
        let error = error.expect_err("wrong");
        assert!(error.contains(expected), "{line}: {error}");
    };
    check("ads,a,7,", "it has 4 cells, and the header 5");
    check("Ads,a,7,,", "kind \"Ads\" must be 1 to 32 lower-case letters");
    check("ads,a b,7,,", "id \"a b\" must be");
    check("ads,,7,,", "id \"\" must be");
    check("ads,top,7,,", "the id \"top\" is a word of the path");
    check("ads,a,,,", "total, or day and views, are missing");
    check("ads,a,,2026-11-30,", "views is missing beside day");
    check("ads,a,,,5", "day is missing beside views");
    check("ads,a,7,2026-11-30,5", "there is a total beside day or views");
    check("ads,a,-7,,", "total is '-7', not a number of views");
    check("ads,a,+7,,", "total is '+7', not a number of views");
    check("ads,a,1.5,,", "total is '1.5', not a number of views");
    check("ads,a,9007199254740992,,", "total is 9007199254740992, above 9007199254740991");
    check("ads,a,99999999999999999999,,", "total is '99999999999999999999', not a number of views");
    check("ads,a,,2026-11-31,5", "day is '2026-11-31', not a day such as 2026-11-30");
    check("ads,a,,2026-11-30T10:00,5", "not a day such as 2026-11-30");
    check("ads,\"a,7,,", "a quoted cell does not end");
}

#[test]
fn a_wrong_line_of_json_is_named() {
    let check = |line: &str, expected: &str| {
        let error = read(FigureFormat::Jsonl, &[line]).remove(0).expect_err("wrong");
        assert!(error.contains(expected), "{line}: {error}");
    };
    check("{", "EOF");
    check(r#"["ads","a",7,null,null]"#, "it is not a JSON object");
    check(r#"{"kind":"ads","total":7}"#, "missing field `id`");
    check(r#"{"kind":"ads","id":"a","total":7,"n":1}"#, "unknown field `n`");
    check(r#"{"kind":"ads","id":"a","total":7,"total":8}"#, "duplicate field `total`");
    check(r#"{"kind":"ads","id":"a","total":-7}"#, "invalid value: integer `-7`");
    check(r#"{"kind":"ads","id":"a","total":1.5}"#, "invalid type: floating point `1.5`");
    check(r#"{"kind":"ads","id":7,"total":7}"#, "invalid type: integer `7`");
    check(r#"{"kind":"ads","id":"a","total":7} x"#, "trailing characters at column");
    check(r#"{"kind":"ads","id":"a","day":"2026-11-30"}"#, "views is missing beside day");
    check(r#"{"kind":"ads","id":"top","total":7}"#, "the id \"top\" is a word of the path");
}

use anyhow::Result;
use bson::Bson;
use bson::oid::ObjectId;

use super::arguments::AccountIdType;
use super::lines::{Line, Lines};
use super::name::{Name, Names};
use super::row::{Columns, Header};
use super::{cells, lines, row};
use crate::flags::Renamed;

fn columns() -> Columns {
    Columns::new(&[]).unwrap()
}

#[test]
fn cells_of_a_line() {
    let good: [(&str, &[&str]); 7] = [
        ("a,b", &["a", "b"]),
        ("", &[""]),
        ("a,,", &["a", "", ""]),
        ("\"a,b\",c", &["a,b", "c"]),
        ("\"say \"\"hello\"\"\"", &["say \"hello\""]),
        ("\"\",x", &["", "x"]),
        (" a , b", &[" a ", " b"]),
    ];
    for (line, cells) in good {
        assert_eq!(cells::split(line).unwrap(), cells, "{line}");
    }
    for line in ["\"a", "\"a\"b,c", "a\"b", "x,\"a\"\"", "\"a\" ,b"] {
        assert!(cells::split(line).is_err(), "{line}");
    }
}

#[test]
fn lines_are_numbered_and_bounded() {
    let long = "x".repeat(lines::LINE_BYTES_MAX);
    let input = [
        "\u{feff}first\r\n\n   \nfourth\n".as_bytes(),
        b"bad \xff here\n",
        long.as_bytes(),
        b"\n",
        long.as_bytes(),
        b"y\nlast",
    ]
    .concat();
    let mut lines = Lines::new(std::io::BufReader::with_capacity(7, input.as_slice()));
    let mut read = Vec::new();
    while let Some(Line { number, text }) = lines.next().unwrap() {
        read.push((number, text.map_err(|unreadable| unreadable.reason)));
    }
    let expected = [
        (1, Ok("first".to_owned())),
        (4, Ok("fourth".to_owned())),
        (5, Err("the line is not UTF-8, from byte 5 on".to_owned())),
        (6, Ok(long)),
        (7, Err("the line is longer than 65536 bytes".to_owned())),
        (8, Ok("last".to_owned())),
    ];
    assert_eq!(read, expected);
    assert_eq!(lines.bytes, input.len() as u64);
}

fn csv_row(account_ids: AccountIdType, line: &str) -> Result<row::Row, String> {
    Header::read("id,from,to,amount,asset", &columns(), account_ids).unwrap().row(line)
}

#[test]
fn rows_of_csv() {
    let row = csv_row(AccountIdType::Text, "7,ann,bob, 30 ,EUR").unwrap();
    assert_eq!((row.id, row.from, row.to, row.amount), (Some("7".into()), "ann".into(), "bob".into(), 30));
    let row = csv_row(AccountIdType::Number, ",1,2,30,").unwrap();
    assert_eq!((row.id, row.from, row.asset), (None, Bson::Int64(1), None));
    let bad = [
        (AccountIdType::Text, "7,ann,bob,30", "it has 4 cells, the header has 5"),
        (AccountIdType::Text, "7,,bob,30,", "from is missing"),
        (AccountIdType::Text, "7,ann,,30,", "to is missing"),
        (AccountIdType::Text, "7,ann,bob,,", "amount is '', not a whole number"),
        (AccountIdType::Text, "7,ann,bob,12.50,", "amount is '12.50', not a whole number"),
        (AccountIdType::Text, "7,ann,bob,+5,", "amount is '+5', not a whole number"),
        (AccountIdType::Text, "7,ann,bob,-5,", "amount is -5, it must be from 1 to"),
        (AccountIdType::Text, "7,ann,bob,0,", "amount is 0, it must be from 1 to"),
        (AccountIdType::Text, "7,ann,bob,99999999999999999999,", "not a whole number"),
        (AccountIdType::Text, "7,ann,ann,5,", "from and to are both ann"),
        (AccountIdType::Number, "7,ann,2,5,", "from is 'ann', not a whole number: --account-ids"),
        (AccountIdType::ObjectId, "7,ann,2,5,", "from is 'ann', not an ObjectId"),
    ];
    for (ids, line, expected) in bad {
        let why = csv_row(ids, line).unwrap_err();
        assert!(why.contains(expected), "{line}: {why}");
    }
    let long = format!("{},ann,bob,5,", "x".repeat(1001));
    assert_eq!(csv_row(AccountIdType::Text, &long).unwrap_err(), "id is longer than 1000 bytes");
}

#[test]
fn headers_of_csv() {
    let read = |line: &str, columns: &Columns| Header::read(line, columns, AccountIdType::Text);
    let why = read("from,to", &columns()).unwrap_err();
    assert_eq!(why, "the header has no column 'amount', only from, to; --column amount=NAME gives another name");
    assert_eq!(read("from,to,amount,to", &columns()).unwrap_err(), "the header has two columns 'to'");
    let renamed = Columns::new(&[Renamed { default: "amount".to_owned(), name: "cent".to_owned() }]).unwrap();
    assert!(!read("note,cent,to,from", &renamed).unwrap().has_ids());
    assert!(Columns::new(&[Renamed { default: "sum".to_owned(), name: "cent".to_owned() }]).is_err());
}

#[test]
fn rows_of_json() {
    let read = |line: &str| row::of_json(line, &columns());
    let line =
        r#"{"id": {"$oid": "65a1b2c3d4e5f60718293a4b"}, "from": 1, "to": "bob", "amount": 5000000000, "note": []}"#;
    let row = read(line).unwrap();
    assert_eq!((row.from, row.amount), (Bson::Int32(1), 5_000_000_000));
    assert!(matches!(row.id, Some(Bson::ObjectId(_))));
    let bad = [
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        (r#"{"from": 1, "to": 2}"#, "amount is missing"),
        (r#"{"from": 1, "amount": 2}"#, "to is missing"),
        (r#"{"from": null, "to": 2, "amount": 2}"#, "from is missing"),
        (r#"{"from": 1, "to": 2, "amount": 2.5}"#, "not a whole number"),
        (r#"{"from": 1, "to": 2, "amount": "2"}"#, "not a whole number"),
        (r#"{"from": 1, "to": 2, "amount": 2, "id": {"a": 1}}"#, "id is {\"a\":1}, not a text"),
        (r#"{"from": [1], "to": 2, "amount": 2}"#, "from is [1], not a text"),
        (r#"{"from": 1, "to": 2, "amount": 2, "asset": 5}"#, "asset is 5, not a text"),
    ];
    for (line, expected) in bad {
        let why = read(line).unwrap_err();
        assert!(why.contains(expected), "{line}: {why}");
    }
}

#[test]
fn names_follow_what_rows_say_and_not_where_they_stand() {
    let named = |batch: Option<&str>, lines: &[&str]| -> Vec<_> {
        let mut names = Names::new(batch.map(str::to_owned));
        lines.iter().map(|line| names.name(&csv_row(AccountIdType::Text, line).unwrap())).collect()
    };
    let one = named(Some("march"), &[",ann,bob,5,", ",ann,bob,5,", ",bob,ann,7,", "9,ann,bob,5,"]);
    assert_eq!(one[0], Ok(Bson::from(r#"["march","ann","bob",5,null,1]"#)));
    assert_eq!(one[1], Ok(Bson::from(r#"["march","ann","bob",5,null,2]"#)));
    assert_eq!(one[3], Ok(Bson::from("9")));
    let moved = named(Some("march"), &[",bob,ann,7,", ",zoe,ann,1,", ",ann,bob,5,", ",ann,bob,5,"]);
    assert_eq!([&moved[0], &moved[2], &moved[3]], [&one[2], &one[0], &one[1]]);
    assert_ne!(named(Some("april"), &[",ann,bob,5,"])[0], one[0]);
    assert!(named(None, &[",ann,bob,5,"])[0].is_err());
}

#[test]
fn an_id_is_the_text_that_it_reads_as() {
    let oid = ObjectId::parse_str("65a1b2c3d4e5f60718293a4b").unwrap();
    let uuid = bson::uuid::Uuid::parse_str("550e8400-e29b-41d4-a716-446655440000").unwrap();
    let same = [
        ("1", vec![Bson::Int32(1), Bson::Int64(1)]),
        ("-5", vec![Bson::Int64(-5)]),
        ("65a1b2c3d4e5f60718293a4b", vec![oid.into()]),
        ("550e8400-e29b-41d4-a716-446655440000", vec![uuid.into()]),
    ];
    for (text, values) in same {
        let name = Name::new(text.into());
        assert_eq!(name.id(), &Bson::from(text));
        for value in values {
            assert_eq!(Name::new(value.clone()), name, "{value}");
            let is_found = name.recorded().iter().any(|recorded| row::is_same_account(recorded, &value));
            assert!(is_found && name.recorded()[0] == *name.id(), "{value}: {name:?}");
        }
    }
    // Each text that is written differently is another id.
    for text in ["01", "+1", " 1", "1.0", "-0", "order-7", "65A1B2C3D4E5F60718293A4B", "99999999999999999999"] {
        assert_eq!(Name::new(text.into()).recorded(), [Bson::from(text)]);
    }
    let binary = Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![49] });
    assert_eq!(Name::new(binary.clone()).recorded(), [binary]);
}

#[test]
fn accounts_are_one_as_the_store_compares_them() {
    let same = row::is_same_account;
    assert!(same(&Bson::Int32(1), &Bson::Int64(1)) && same(&Bson::Double(1.0), &Bson::Int32(1)));
    assert!(
        same(&"1".into(), &"1".into())
            && !same(&"1".into(), &Bson::Int32(1))
            && !same(&Bson::Int32(1), &Bson::Int32(2))
    );
    let why = row::of_json(r#"{"id": 1, "from": 7, "to": {"$numberLong": "7"}, "amount": 2}"#, &columns()).unwrap_err();
    assert_eq!(why, "from and to are both 7");
}

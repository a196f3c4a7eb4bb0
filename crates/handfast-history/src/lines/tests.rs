//! The format: written histories are read again, and errors name the line.

use super::{HistoryReader, HistoryWriter, Item};
use crate::event::{Bank, Event, EventKind, Expectation, Header, Isolation, MicroOp, Model, Name, Order, ReadValue};
use crate::judge;

#[test]
fn a_written_history_is_read_again() {
    let header = Header {
        model: Some(Model::RwRegister),
        isolation: Some(Isolation::Serializable),
        order: Some(Order::Session),
        bank: Some(Bank { total: 100, accounts: 2 }),
    };
    let (key, value) = (Name::from("a"), Name::from(7));
    let event = Event {
        kind: EventKind::Fail,
        process: 3,
        transaction: Some(17),
        operations: vec![
            MicroOp::Read { key: key.clone(), seen: ReadValue::Nothing, amount: None },
            MicroOp::Read { key: key.clone(), seen: ReadValue::List(vec![value.clone()]), amount: None },
            MicroOp::Read { key: key.clone(), seen: ReadValue::Value("x".into()), amount: Some(-4) },
            MicroOp::Write { key: key.clone(), value: value.clone(), amount: Some(4) },
            MicroOp::Append { key, value },
        ],
        nanoseconds: Some(5),
        error: Some("write conflict".to_owned()),
    };
    let mut writer = HistoryWriter::new(Vec::new(), &header).unwrap();
    writer.write(&event).unwrap();
    let text = String::from_utf8(writer.finish().unwrap()).unwrap();
    let expected = concat!(
        r#"{"index":0,"type":"info","f":"history","process":"recorder","model":"rw-register","isolation":"serializable","#,
        r#""order":"session","total":100,"accounts":2}"#,
        "\n",
        r#"{"index":1,"type":"fail","f":"txn","process":3,"txn":17,"value":[["r","a",null],["r","a",[7]],["r","a","x"],"#,
        r#"["w","a",7],["append","a",7]],"amounts":[null,null,-4,4,null],"time":5,"error":"write conflict"}"#,
        "\n",
    );
    assert_eq!(text, expected);
    let mut reader = HistoryReader::new(text.as_bytes());
    assert_eq!(reader.next_item().unwrap(), Some(Item::Header(header)));
    assert_eq!(reader.next_item().unwrap(), Some(Item::Event(event)));
    assert_eq!(reader.next_item().unwrap(), None);
}

#[test]
fn a_history_in_jepsens_format_is_read() {
    let text = r#"
        {"type":"invoke","f":"txn","value":[["append","x",1],["r","x",null]],"process":0,"index":0}
        {"type":"info","f":"start-partition","process":"nemesis","value":{"any":"thing"},"index":1}
        {"type":"ok","f":"txn","value":[["append","x",1],["r","x",[1]]],"process":0,"index":2,"error":["a",1]}
    "#;
    let verdict = judge(text.as_bytes(), None, None).unwrap();
    assert!(verdict.is_clean());
    assert_eq!((verdict.report.counts.transactions, verdict.report.counts.committed), (1, 1));
}

#[test]
fn the_caller_overrides_the_isolation_of_the_header() {
    let skew = r#"
        {"type":"info","f":"history","process":"recorder","model":"list-append","isolation":"serializable"}
        {"type":"invoke","process":0,"value":[]}
        {"type":"invoke","process":1,"value":[]}
        {"type":"ok","process":0,"value":[["r",1,[]],["r",2,[]],["append",1,1]]}
        {"type":"ok","process":1,"value":[["r",1,[]],["r",2,[]],["append",2,1]]}
    "#;
    let checked = judge(skew.as_bytes(), None, None).unwrap();
    assert_eq!(checked.report.kinds(), ["G2"]);
    assert_eq!(checked.expectation, Expectation { isolation: Isolation::Serializable, order: Order::RealTime });
    assert!(judge(skew.as_bytes(), Some(Isolation::Snapshot), None).unwrap().is_clean());
}

#[test]
fn errors_name_the_line() {
    for (line, text) in [
        ("{", "line 2"),
        (r#"{"type":"done","process":0}"#, "unknown variant `done`"),
        (r#"{"type":"ok","process":0,"value":[["x",1,2]]}"#, "value: x is none of r, w, append"),
        (
            r#"{"type":"ok","process":0,"value":[["append",1,null]]}"#,
            "value: append of key 1 needs an integer or a string",
        ),
        (r#"{"type":"ok","process":0,"value":[["r",1,[]]],"amounts":[]}"#, "amounts: not one for each"),
        (r#"{"type":"info","f":"history","total":5}"#, "says total and accounts, both"),
        (r#"{"type":"info","f":"history"}"#, "a header is the first line"),
        (r#"{"type":"ok","process":9}"#, "process 9 ends a transaction that it has not begun"),
    ] {
        let all = format!("{}\n{line}\n", r#"{"type":"invoke","process":0}"#);
        let error = judge(all.as_bytes(), None, None).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("line 2"), "{error}");
    }
}

#[test]
fn a_line_that_is_too_long_is_refused() {
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    let error = HistoryReader::new(endless).next_item().unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
}

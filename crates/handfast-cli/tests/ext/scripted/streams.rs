//! Compression, with the drivers of five languages, and exhaust cursors, which pymongo has.

use bson::rawdoc;
use handfast_blackpipe::{Answer, Compressor, Matcher, ReceivedRequest, Role, Script};

use super::drivers::Driver;
use super::{play, start};
use crate::support::{Tool, turn};

/// The driver compresses its requests with each compressor that it has, and reads replies that are compressed.
fn check_compression(driver: Option<Driver>, compressors: &[Compressor]) {
    let _turn = turn();
    let Some(driver) = driver else { return };
    for &compressor in compressors {
        let collection = format!("shop.{}", compressor.name());
        let insert = Matcher::command("insert").on(&collection);
        let script = Script::in_order().with_compressors(Compressor::NEGOTIABLE).expect(insert, Answer::written(1));
        let (_runtime, server) = start(Role::Primary("rs".to_owned()), script);
        let uri = format!("{}?compressors={}", server.uri(), compressor.name());
        let printed = driver.run(&uri, &[format!("insert:{}", compressor.name())]);
        assert_eq!(printed, Ok(format!("insert:{} 1 inserted\n", compressor.name())));
        let received = server.finish().expect("the script was followed");
        assert_eq!(received[0].compressor(), Some(compressor));
    }
}

#[test]
fn ext_scripted_compression_pymongo() {
    check_compression(Driver::pymongo(), &Compressor::NEGOTIABLE);
}

/// The package for zstd is not installed.
#[test]
fn ext_scripted_compression_node() {
    check_compression(Driver::node(), &[Compressor::Snappy, Compressor::Zlib]);
}

#[test]
fn ext_scripted_compression_go() {
    check_compression(Driver::go(), &Compressor::NEGOTIABLE);
}

#[test]
fn ext_scripted_compression_rust() {
    check_compression(Driver::rust(), &Compressor::NEGOTIABLE);
}

/// The libraries for snappy and zstd are not installed.
#[test]
fn ext_scripted_compression_java() {
    check_compression(Driver::java(), &[Compressor::Zlib]);
}

/// The batches of an exhaust cursor arrive without further requests; a connection that ends in the middle is an error, and nothing is repeated.
#[test]
fn ext_scripted_exhaust() {
    let _turn = turn();
    let Some(python) = Tool::Python.find() else { return };
    let batch = |cursor: i64, id: i32| Answer::next_batch("shop.orders", cursor, [rawdoc! { "_id": id }]);
    let find = || Matcher::command("find").on("shop.orders").with("batchSize", 1);
    let first = || Answer::first_batch("shop.orders", 7, [rawdoc! { "_id": 1 }]);
    let get_more = || Matcher::command("getMore").with("getMore", 7);
    let script = Script::in_order()
        .expect(find(), first())
        .expect(get_more(), Answer::Exhaust(vec![batch(7, 2), batch(7, 3), batch(0, 4)]))
        .expect(find(), first())
        .expect(get_more(), Answer::Exhaust(vec![batch(7, 2), Answer::HangUp]));
    let program = "
def read():
    ids = []
    try:
        for order in orders.find(cursor_type=pymongo.CursorType.EXHAUST, batch_size=1):
            ids.append(order['_id'])
        print(ids)
    except PyMongoError as error:
        print(ids, type(error).__name__)
read()
read()
";
    let played = play(&python, Role::Primary("rs".to_owned()), script, program);
    assert_eq!(played.printed, "[1, 2, 3, 4]\n[1, 2] AutoReconnect\n");
    let received = played.received.unwrap_or_else(|error| panic!("{error}"));
    let allowed: Vec<bool> = received.iter().map(ReceivedRequest::is_exhaust_allowed).collect();
    assert_eq!(allowed, [false, true, false, true]);
}

use bson::rawdoc;

use crate::testing::{TestServer, check_refused, in_transaction, insert, numbered};

#[tokio::test]
async fn each_stage_is_the_first_one_of_its_collection_or_database_and_not_in_a_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    for (number, (stage, source, code)) in [
        (rawdoc! { "$collStats": {} }, bson::rawbson!(1), 73),
        (rawdoc! { "$indexStats": {} }, bson::rawbson!(1), 73),
        (rawdoc! { "$planCacheStats": {} }, bson::rawbson!(1), 73),
        (rawdoc! { "$currentOp": {} }, bson::rawbson!(1), 73),
        (rawdoc! { "$listLocalSessions": {} }, bson::rawbson!("c"), 73),
        (rawdoc! { "$listSessions": {} }, bson::rawbson!("c"), 73),
        (rawdoc! { "$querySettings": {} }, bson::rawbson!(1), 73),
    ]
    .into_iter()
    .enumerate()
    {
        // The source is wrong, with the options of each stage.
        let command = |first: bson::RawBson, source: bson::RawBson| {
            rawdoc! { "aggregate": source, "pipeline": first, "cursor": {} }
        };
        check_refused(&mut client, command(bson::rawbson!([stage.clone()]), source), code, "").await;
        let second = bson::rawbson!([{ "$match": {} }, stage.clone()]);
        check_refused(&mut client, command(second, bson::rawbson!("c")), 40_602, "only valid as the first stage").await;
        let number = i64::try_from(number).unwrap();
        let within = in_transaction(command(bson::rawbson!([stage]), bson::rawbson!("c")), number, true);
        check_refused(&mut client, within, 263, "cannot run within a multi-document transaction").await;
    }
}

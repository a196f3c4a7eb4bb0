use std::io;
use std::io::ErrorKind as IoKind;
use std::time::Duration;

use bson::Document;
use handfast_store::{Applied, ErrorClass};
use mongodb::error::Error as DriverError;
use mongodb::options::ConnectionString;

use super::{Contact, FIRST_CONTACT_TIMEOUT, reason_for};

fn io(kind: IoKind, text: &str) -> DriverError {
    DriverError::from(io::Error::new(kind, text))
}

#[test]
fn errors_name_the_likely_cause() {
    let said = |kind, text| reason_for("db:1", &io(kind, text));
    assert_eq!(
        said(IoKind::ConnectionRefused, "refused"),
        "nothing listens at db:1: is the server started, is the port right?"
    );
    assert!(said(IoKind::UnexpectedEof, "end").contains("closed the connection (end): does it take TLS"));
    assert_eq!(said(IoKind::InvalidData, "bad name"), "db:1: no TLS with this server: bad name");
}

fn contact(uri: &str) -> Contact {
    Contact::new(&ConnectionString::parse(uri).expect("a connection string"))
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_ends_the_wait_and_a_slow_one_does_not() {
    let brief = Duration::from_millis(50);
    let late = || async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(7)
    };
    let contact = Contact { limit: Some(brief), ..contact("mongodb://db:1") };
    assert!(contact.lost("db:1", &io(IoKind::ConnectionRefused, "refused")));
    let error = contact.wait_for(late()).await.expect_err("nobody");
    assert_eq!((error.class(), error.applied()), (ErrorClass::Outage, Applied::No));
    assert!(error.message().starts_with("nothing listens at db:1"), "{error}");
    // The server is found.
    contact.found("db:1");
    assert_eq!(contact.wait_for(late()).await.expect("an answer"), 7);
    // After that no error is kept for a failure of the first contact.
    assert!(!contact.lost("db:1", &io(IoKind::ConnectionRefused, "refused")));
    assert!(contact.servers().is_none());
}

#[test]
fn the_connection_string_sets_the_timeout() {
    assert_eq!(contact("mongodb://db:1").limit, Some(FIRST_CONTACT_TIMEOUT));
    assert_eq!(contact("mongodb://db:1/?connectTimeoutMS=100").limit, Some(FIRST_CONTACT_TIMEOUT));
    assert_eq!(contact("mongodb://db:1/?connectTimeoutMS=20000").limit, Some(Duration::from_secs(20)));
    assert_eq!(contact("mongodb://db:1/?connectTimeoutMS=20000&serverSelectionTimeoutMS=9").limit, None);
}

#[test]
fn silent_and_mismatched_servers_are_named() {
    let silent = contact("mongodb://db:1,db:2");
    silent.opened("db:1");
    silent.opened("db:2");
    let text = silent.unreachable().message().to_owned();
    assert!(text.contains("db:1: no answer") && text.contains("db:2: no answer"), "{text}");
    let of_set = bson::doc! { "setName": "rs0", "me": "inner:1", "hosts": ["inner:1"] };
    let said = |uri, reply: &Document| {
        let contact = contact(uri);
        contact.opened("db:1");
        contact.answered("db:1", reply);
        contact.dropped("db:1");
        contact.unreachable().message().to_owned()
    };
    let text = said("mongodb://db:1/?replicaSet=wrong", &of_set);
    assert!(text.starts_with("db:1 answers, but is of the replica set rs0 and not of wrong"), "{text}");
    let text = said("mongodb://db:1", &of_set);
    assert!(text.starts_with("db:1 answers, but says that it is inner:1"), "{text}");
    let text = said("mongodb://db:1/?replicaSet=rs0", &bson::doc! {});
    assert!(text.contains("leave replicaSet out"), "{text}");
    let text = said("mongodb://db:1,db:2", &bson::doc! {});
    assert!(text.contains("name it alone"), "{text}");
}

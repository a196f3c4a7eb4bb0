use handfast_mql::Code;

use super::{POOL_CONNECTIONS_MAX, SELECTION_TIMEOUT, check, client_options, parse, shown};

#[test]
fn a_shown_address_has_no_secrets() {
    let check = |uri: &str, expected: &str| assert_eq!(shown(uri).expect("a connection string"), expected);
    check("mongodb://localhost", "mongodb://localhost:27017");
    check("mongodb://boss:s%40cret@a:1,b:2/db?replicaSet=r", "mongodb://a:1,b:2");
    check("mongodb://boss@a:1/?authMechanism=SCRAM-SHA-256", "mongodb://a:1");
}

/// An error about a connection string never contains its password.
#[test]
fn errors_have_no_secrets() {
    for uri in [
        "s3cret",
        "http://boss:s3cret@a",
        "mongodb://boss:s3cret@a:port",
        "mongodb://boss:s3cret@a:1@b",
        "mongodb://boss:s3cret/@a:1",
        "mongodb://boss:s3cret@a/?connectTimeoutMS=s3cret",
        "mongodb://boss:s3cret@a/?unknownOption=1",
        "mongodb://boss:s3cret@",
        "mongodb://:s3cret@a",
    ] {
        match shown(uri) {
            Ok(shown) => assert!(!shown.contains("s3cret"), "{uri} is shown as {shown}"),
            Err(error) => {
                assert_eq!(error.code(), Code::BadValue, "{uri}");
                let said = format!("{error} {error:?}");
                assert!(!said.contains("s3cret"), "{uri}: {said}");
            }
        }
    }
}

fn refused(options: &str) -> Option<String> {
    let parsed = parse(&format!("mongodb://a/?{options}")).expect("a connection string");
    check(&parsed).err().map(|error| error.message().to_owned())
}

#[test]
fn options_that_requests_set_are_refused() {
    for fine in ["", "w=majority", "retryWrites=true&w=majority&appName=x", "journal=true", "wtimeoutMS=500"] {
        assert_eq!(refused(fine), None, "{fine}");
    }
    for fine in ["readConcernLevel=majority", "readPreference=primary", "tls=true", "maxPoolSize=3"] {
        assert_eq!(refused(fine), None, "{fine}");
    }
    for (option, name) in [
        ("w=1", "w and journal"),
        ("w=3", "w and journal"),
        ("journal=false", "w and journal"),
        ("readConcernLevel=local", "readConcernLevel"),
        ("readPreference=nearest", "readPreference"),
    ] {
        let text = refused(option).expect(option);
        assert!(text.contains(name), "{option}: {text}");
    }
}

#[tokio::test]
async fn the_driver_retries_nothing_by_itself() {
    let parsed = parse("mongodb://a/?retryWrites=true&retryReads=true").expect("a connection string");
    let options = client_options(parsed, SELECTION_TIMEOUT).await.expect("options");
    assert_eq!((options.retry_writes, options.retry_reads), (Some(false), Some(false)));
    assert_eq!(options.max_pool_size, Some(POOL_CONNECTIONS_MAX));
    let parsed = parse("mongodb://a/?maxPoolSize=7").expect("a connection string");
    assert_eq!(client_options(parsed, SELECTION_TIMEOUT).await.expect("options").max_pool_size, Some(7));
}

#[test]
fn a_user_without_a_password_is_refused() {
    let refused = |uri: &str| check(&parse(uri).expect("a connection string")).err();
    for fine in ["mongodb://a", "mongodb://boss:secret@a", "mongodb://boss@a/?authMechanism=MONGODB-X509&tls=true"] {
        assert!(refused(fine).is_none(), "{fine}");
    }
    for lacking in ["mongodb://boss@a", "mongodb://boss@a/?authMechanism=SCRAM-SHA-256"] {
        let error = refused(lacking).expect(lacking);
        assert!(error.code() == Code::BadValue && error.message().contains("USER:PASSWORD@HOST"), "{error}");
    }
}

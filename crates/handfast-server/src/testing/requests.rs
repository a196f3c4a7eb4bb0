//! Requests that many tests send, and parts of replies that they compare.

use bson::raw::{CString, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};

use super::{ReplyFields, TestClient};

/// Returns the documents `{_id: 0}`, `{_id: 1}` and so on.
pub(crate) fn numbered(count: i32) -> Vec<RawDocumentBuf> {
    (0..count).map(|id| rawdoc! { "_id": id }).collect()
}

/// Inserts documents into a collection of the database `d`.
pub(crate) async fn insert(client: &mut TestClient, collection: &str, documents: &[RawDocumentBuf]) {
    let reply = client.run_with("d", rawdoc! { "insert": collection }, &[("documents", documents)]).await;
    assert_eq!(reply, rawdoc! { "n": i32::try_from(documents.len()).unwrap(), "ok": 1.0 });
}

/// Returns a document of one field, such as the key of an index or a command without arguments.
pub(crate) fn named(name: &str, value: i32) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(CString::try_from(name).unwrap(), value);
    document
}

/// Returns the id of a session: a UUID of which all bytes are this one.
pub(crate) fn lsid(byte: u8) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

/// Adds the session 1 and a number of its requests, which make a write retryable.
pub(crate) fn with_number(mut command: RawDocumentBuf, number: i64) -> RawDocumentBuf {
    command.append(bson::raw::cstr!("lsid"), lsid(1));
    command.append(bson::raw::cstr!("txnNumber"), number);
    command
}

/// Adds the transaction of this number of the session 1, of which the command may be the first one.
pub(crate) fn in_transaction(command: RawDocumentBuf, number: i64, is_first: bool) -> RawDocumentBuf {
    let mut command = with_number(command, number);
    command.append(bson::raw::cstr!("autocommit"), false);
    if is_first {
        command.append(bson::raw::cstr!("startTransaction"), true);
    }
    command
}

/// Ends a transaction of the session 1 by `commitTransaction` or `abortTransaction`, and returns the reply.
pub(crate) async fn end(client: &mut TestClient, command: &str, number: i64) -> RawDocumentBuf {
    client.run("admin", in_transaction(named(command, 1), number, false)).await
}

/// Runs a command on the database `d`, and compares its reply without `ok: 1`.
pub(crate) async fn check(client: &mut TestClient, command: RawDocumentBuf, mut expected: RawDocumentBuf) {
    expected.append(bson::raw::cstr!("ok"), 1.0);
    assert_eq!(client.run("d", command.clone()).await, expected, "{command:?}");
}

/// Runs a command on the database `d`, which must be refused with this code and a message that contains this text.
pub(crate) async fn check_refused(client: &mut TestClient, command: RawDocumentBuf, code: i32, expected: &str) {
    let reply = client.run("d", command.clone()).await;
    assert_eq!(reply.int("code"), code, "{command:?}: {reply:?}");
    let message = reply.get_str("errmsg").unwrap();
    assert!(message.contains(expected), "{command:?}: {message}");
}

/// Returns the first of a reply's `writeErrors`.
pub(crate) fn write_error(reply: &RawDocument) -> &RawDocument {
    reply.get_array("writeErrors").unwrap().get_document(0).unwrap()
}

/// Returns the indexes of the statements that a reply's `writeErrors` are about.
pub(crate) fn write_error_indexes(reply: &RawDocument) -> Vec<i32> {
    let errors = reply.get_array("writeErrors").unwrap();
    errors.into_iter().map(|error| error.unwrap().as_document().unwrap().int("index")).collect()
}

/// Returns the `errorLabels` of a reply.
pub(crate) fn labels(reply: &RawDocument) -> Vec<String> {
    let labels = reply.get_array("errorLabels").into_iter().flat_map(|labels| labels.into_iter().flatten());
    labels.filter_map(|label| label.as_str().map(str::to_owned)).collect()
}

//! The names of documents in messages.

use bson::{Bson, RawDocument};

/// Returns the `_id` of a document as JSON, as far as it can be read.
pub(crate) fn document_name(document: &RawDocument) -> String {
    let id = document.get("_id").ok().flatten();
    match id.and_then(|id| Bson::try_from(id).ok()) {
        Some(id) => format!("the document {}", id.into_relaxed_extjson()),
        None => "a document without a readable _id".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::document_name;

    #[test]
    fn a_document_is_called_by_its_id() {
        let check = |document: RawDocumentBuf, name: &str| assert_eq!(document_name(&document), name);
        check(
            rawdoc! { "_id": { "kind": "ads", "id": "7" }, "total": 5_i64 },
            r#"the document {"kind":"ads","id":"7"}"#,
        );
        check(rawdoc! { "_id": 7_i64 }, "the document 7");
        let id: bson::oid::ObjectId = "0123456789abcdef01234567".parse().expect("an id");
        check(rawdoc! { "_id": id }, r#"the document {"$oid":"0123456789abcdef01234567"}"#);
        check(rawdoc! { "total": 5_i64 }, "a document without a readable _id");
    }
}

use bson::{RawDocumentBuf, rawdoc};

use super::{Hello, Product, STATEMENTS_MAX};
use crate::concern::Deployment;

#[test]
fn products_are_told_apart() {
    let check = |build: RawDocumentBuf, name: &str, is_ferretdb_1| {
        assert_eq!(Product::of(&build), Product { name: name.to_owned(), is_ferretdb_1 });
    };
    check(rawdoc! { "version": "8.0.4" }, "MongoDB 8.0.4", false);
    check(rawdoc! { "version": "8.0.0", "handfast": { "version": "0.1.0" } }, "Handfast 0.1.0", false);
    let first = rawdoc! { "version": "7.0.42", "ferretdbVersion": "v1.24.2" };
    check(first, "FerretDB 1, version v1.24.2", true);
    let second = rawdoc! { "version": "7.0.77", "ferretdb": { "version": "v2.7.0" } };
    check(second, "FerretDB v2.7.0", false);
    check(rawdoc! {}, "a server without a version", false);
}

#[test]
fn a_server_says_what_it_is_and_takes() {
    let check = |hello: RawDocumentBuf, deployment, statements_max| {
        let hello = Hello::of(&hello);
        assert_eq!((hello.deployment, hello.statements_max), (deployment, statements_max));
    };
    check(rawdoc! { "maxWriteBatchSize": 1000 }, Deployment::Standalone, 1000);
    check(rawdoc! { "setName": "rs0" }, Deployment::ReplicaSet, STATEMENTS_MAX);
    check(rawdoc! { "msg": "isdbgrid" }, Deployment::Sharded, STATEMENTS_MAX);
}

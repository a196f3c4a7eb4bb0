//! Projections against a model that works on `bson::Document`s; and random projections.

use bson::{Bson, Document, doc};
use proptest::prelude::*;

use super::{raw, run};
use crate::Code;
use crate::arbitrary::{document, value};

/// Returns the part of a value that is shown if only these paths are included.
fn include(value: &Bson, paths: &[Vec<&str>]) -> Option<Bson> {
    if paths.iter().any(Vec::is_empty) {
        return Some(value.clone());
    }
    match value {
        Bson::Document(document) => Some(Bson::Document(
            document
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), include(value, &below(name, paths)?)?)))
                .collect(),
        )),
        Bson::Array(items) => Some(Bson::Array(items.iter().filter_map(|item| include(item, paths)).collect())),
        _ => None,
    }
}

/// Returns the part of a value that is shown if these paths are excluded.
fn exclude(value: &Bson, paths: &[Vec<&str>]) -> Option<Bson> {
    if paths.iter().any(Vec::is_empty) {
        return None;
    }
    Some(match value {
        Bson::Document(document) => Bson::Document(
            document
                .iter()
                .filter_map(|(name, value)| match below(name, paths) {
                    Some(paths) => Some((name.clone(), exclude(value, &paths)?)),
                    None => Some((name.clone(), value.clone())),
                })
                .collect(),
        ),
        Bson::Array(items) => Bson::Array(items.iter().filter_map(|item| exclude(item, paths)).collect()),
        other => other.clone(),
    })
}

fn below<'p>(name: &str, paths: &[Vec<&'p str>]) -> Option<Vec<Vec<&'p str>>> {
    let below: Vec<Vec<&str>> = paths.iter().filter(|path| path[0] == name).map(|path| path[1..].to_vec()).collect();
    (!below.is_empty()).then_some(below)
}

fn path() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(prop::sample::select(vec!["a", "b", "c", "0"]), 1..4)
}

fn wild() -> impl Strategy<Value = Document> {
    let name = prop_oneof!["(a|b|c|_id)(\\.(a|b|c|\\$|\\$ref)){0,2}", "[a$.]{0,3}"];
    let operator = prop::sample::select(vec!["$slice", "$elemMatch", "$meta", "a", "b.c"]);
    let setting = prop_oneof![
        4 => (0..2).prop_map(Bson::Int32),
        1 => value(),
        2 => (operator, value()).prop_map(|(name, value)| Bson::Document(doc! { name: value })),
    ];
    proptest::collection::vec((name, setting), 0..4).prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn projections_agree_with_the_model(
        document in document(),
        paths in proptest::collection::vec(path(), 1..4),
        inclusion in any::<bool>(),
    ) {
        let apart = paths.iter().enumerate().all(|(index, path)| {
            paths[..index].iter().all(|other| !path.starts_with(other) && !other.starts_with(path))
        });
        let mut projection = Document::new();
        for path in &paths {
            projection.insert(path.join("."), i32::from(inclusion));
        }
        let shown = run(&projection, None, &document);
        if apart {
            let whole = Bson::Document(document);
            let expected = if inclusion { include(&whole, &paths) } else { exclude(&whole, &paths) };
            let Some(Bson::Document(expected)) = expected else { panic!("a document stays one") };
            // `Document` compares as a map, so the bytes check the order as well.
            prop_assert_eq!(raw(&shown.unwrap()), raw(&expected));
        } else if projection.len() == paths.len() {
            let code = shown.unwrap_err().code();
            prop_assert!([Code(31249), Code(31250)].contains(&code), "{:?}", code);
        }
    }

    #[test]
    fn no_projection_panics(document in document(), projection in wild(), position in 0..3_usize) {
        for position in [None, Some(position)] {
            let _ = run(&projection, position, &document);
        }
    }
}

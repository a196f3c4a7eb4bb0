use std::collections::BTreeMap;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_mql::collation::with_variable;

use super::{VIEW_DEPTH_MAX, ViewCatalog, check_definition, of_source, resolve};
use crate::{
    Aggregate, AggregateSource, CollectionOptions, Distinct, DocumentStore, Find, MemoryStore, Namespace, Result,
    Sources, StoreExt, ViewDefinition,
};

#[derive(Default)]
struct Names(BTreeMap<Namespace, CollectionOptions>);

impl ViewCatalog for Names {
    fn options(&self, namespace: &Namespace) -> Option<&CollectionOptions> {
        self.0.get(namespace)
    }

    fn views(&self, database: &str) -> Vec<(&Namespace, &ViewDefinition)> {
        let of = self.0.iter().filter(|(namespace, _)| namespace.database() == database);
        of.filter_map(|(namespace, options)| Some((namespace, options.view.as_ref()?))).collect()
    }
}

impl Names {
    /// Adds a view, if its definition is valid.
    fn add(&mut self, name: &str, view: ViewDefinition) -> Result<()> {
        let options = CollectionOptions { view: Some(view), ..CollectionOptions::default() };
        check_definition(self, &namespace(name), &options)?;
        self.0.insert(namespace(name), options);
        Ok(())
    }
}

fn namespace(name: &str) -> Namespace {
    Namespace::new("db", name).unwrap()
}

fn view(on: &str, pipeline: &[RawDocumentBuf]) -> ViewDefinition {
    ViewDefinition { on: on.to_owned(), pipeline: pipeline.to_vec(), collation: None }
}

fn french(on: &str) -> ViewDefinition {
    let collation = handfast_mql::Collation::parse(&rawdoc! { "locale": "fr" }).unwrap().unwrap();
    ViewDefinition { collation: Some(collation.document().to_owned()), ..view(on, &[]) }
}

fn lookup(from: &str) -> RawDocumentBuf {
    rawdoc! { "$lookup": { "from": from, "as": "x", "pipeline": [] } }
}

#[test]
fn a_find_becomes_the_stages_of_all_views_and_its_own() {
    let mut names = Names::default();
    names.add("a", view("c", &[rawdoc! { "$match": { "x": 1 } }])).unwrap();
    names.add("b", view("a", &[rawdoc! { "$project": { "y": 1 } }])).unwrap();
    assert_eq!(resolve(&names, &namespace("c")).unwrap(), None);
    let resolved = resolve(&names, &namespace("b")).unwrap().unwrap();
    let find = Find {
        sort: rawdoc! { "y": 1 },
        projection: rawdoc! { "_id": 0 },
        skip: 1,
        limit: Some(2),
        ..Find::new(namespace("b"), rawdoc! { "y": 3 })
    };
    let Aggregate { source, pipeline, .. } = resolved.find(find).unwrap();
    assert_eq!(source, AggregateSource::Collection(namespace("c")));
    let expected = [
        rawdoc! { "$match": { "x": 1 } },
        rawdoc! { "$project": { "y": 1 } },
        rawdoc! { "$match": { "y": 3 } },
        rawdoc! { "$sort": { "y": 1 } },
        rawdoc! { "$skip": 1_i64 },
        rawdoc! { "$limit": 2_i64 },
        rawdoc! { "$project": { "_id": 0 } },
    ];
    assert_eq!(pipeline, expected);
}

#[test]
fn invalid_definitions_are_refused() {
    let mut names = Names::default();
    names.add("v", view("c", &[lookup("w")])).unwrap();
    names.add("french", french("c")).unwrap();
    for (name, definition, code) in [
        ("x", view("c", &[rawdoc! { "$out": "y" }]), Code::OptionNotSupportedOnView),
        ("x", view("c", &[rawdoc! { "$merge": "y" }]), Code::OptionNotSupportedOnView),
        ("x", view("c", &[rawdoc! { "$changeStream": {} }]), Code::OptionNotSupportedOnView),
        ("x", view("c", &[rawdoc! { "$documents": [] }]), Code::InvalidNamespace),
        ("x", view("a$b", &[]), Code::InvalidNamespace),
        ("x", view("c", &[rawdoc! { "$none": 1 }]), Code(40_324)),
        ("x", view("x", &[]), Code::GraphContainsCycle),
        ("w", view("v", &[]), Code::GraphContainsCycle),
        ("w", view("c", &[rawdoc! { "$facet": { "a": [lookup("v")] } }]), Code::GraphContainsCycle),
        ("w", view("c", &[rawdoc! { "$unionWith": "v" }]), Code::GraphContainsCycle),
        (
            "w",
            view("c", &[rawdoc! { "$unionWith": { "coll": "c", "pipeline": [lookup("v")] } }]),
            Code::GraphContainsCycle,
        ),
        ("x", view("french", &[]), Code::OptionNotSupportedOnView),
        ("x", view("c", &[lookup("french")]), Code::OptionNotSupportedOnView),
        ("w", french("c"), Code::OptionNotSupportedOnView),
    ] {
        let error = names.add(name, definition.clone()).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {definition:?}: {error}");
    }
    // What only looks like a stage reads nothing.
    names
        .add("w", view("c", &[rawdoc! { "$addFields": { "a": { "$literal": { "$lookup": { "from": "v" } } } } }]))
        .unwrap();
}

#[test]
fn a_chain_of_views_has_a_longest_length_from_both_ends() {
    let mut names = Names::default();
    for number in 1..=VIEW_DEPTH_MAX {
        names.add(&format!("v{number}"), view(&format!("v{}", number - 1), &[])).unwrap();
    }
    let error = names.add("last", view(&format!("v{VIEW_DEPTH_MAX}"), &[])).unwrap_err();
    assert_eq!(error.code(), Code::ViewDepthLimitExceeded);
    // `v0` is no view yet.
    let error = names.add("v0", view("c", &[])).unwrap_err();
    assert_eq!(error.code(), Code::ViewDepthLimitExceeded);
    assert!(resolve(&names, &namespace(&format!("v{VIEW_DEPTH_MAX}"))).unwrap().is_some());
}

#[test]
fn a_request_has_the_collation_of_the_view_or_none() {
    let mut names = Names::default();
    names.add("french", french("c")).unwrap();
    names.add("bytes", view("c", &[])).unwrap();
    let find = |collation: Option<RawDocumentBuf>| {
        let resolved = resolve(&names, &namespace("french")).unwrap().unwrap();
        let variables = with_variable(RawDocumentBuf::new(), collation.as_deref());
        resolved.find(Find { variables, ..Find::new(namespace("french"), rawdoc! {}) })
    };
    let collation = french("c").collation;
    let variables = with_variable(RawDocumentBuf::new(), collation.as_deref());
    assert_eq!(find(None).unwrap().variables, variables);
    // The default of the source is not that of the view.
    let bytes = resolve(&names, &namespace("bytes")).unwrap().unwrap();
    let found = bytes.find(Find::new(namespace("bytes"), rawdoc! {})).unwrap();
    assert_eq!(found.variables, with_variable(RawDocumentBuf::new(), Some(&handfast_mql::collation::simple())));
    assert_eq!(find(collation).unwrap().variables, variables);
    for other in [rawdoc! { "locale": "de" }, rawdoc! { "locale": "simple" }] {
        assert_eq!(find(Some(other)).unwrap_err().code(), Code::OptionNotSupportedOnView);
    }
}

/// Raw BSON can have a field twice. A definition could hide what it reads that way, and read itself for ever.
#[test]
fn a_field_that_names_a_collection_twice_is_refused() {
    let mut graph = rawdoc! { "from": "c", "startWith": "$a", "connectFromField": "a", "connectToField": "b" };
    graph.append(bson::raw::cstr!("from"), "v");
    graph.append(bson::raw::cstr!("as"), "x");
    let mut names = Names::default();
    let error = names.add("v", view("c", &[rawdoc! { "$graphLookup": graph }])).unwrap_err();
    assert_eq!(error.code(), Code(40_413), "{error}");
}

#[test]
fn an_aggregation_reads_views_of_its_own_collation_only() {
    let mut names = Names::default();
    names.add("french", french("c")).unwrap();
    names.add("bytes", view("c", &[])).unwrap();
    let graph = rawdoc! { "$graphLookup": { "from": "french", "startWith": "$a", "connectFromField": "a", "connectToField": "b", "as": "x" } };
    let facet = rawdoc! { "$facet": { "a": [lookup("french")] } };
    let union = rawdoc! { "$unionWith": { "coll": "c", "pipeline": [lookup("french")] } };
    for stage in [lookup("french"), rawdoc! { "$unionWith": "french" }, graph, facet, union] {
        for source in [namespace("c"), namespace("bytes"), namespace("french")] {
            let expected = (source != namespace("french")).then_some(Code::OptionNotSupportedOnView);
            let request = Aggregate::new(source.clone(), vec![stage.clone()]);
            let refused = of_source(&names, request).err().map(|error| error.code());
            assert_eq!(refused, expected, "{source} {stage:?}");
        }
        let database = AggregateSource::Database("db".to_owned());
        let request = Aggregate { source: database, ..Aggregate::new(namespace("c"), vec![stage]) };
        assert_eq!(of_source(&names, request).unwrap_err().code(), Code::OptionNotSupportedOnView);
    }
    // A filter that looks like a stage is none.
    let filter = rawdoc! { "$match": { "a": { "$lookup": { "from": "french" } } } };
    of_source(&names, Aggregate::new(namespace("c"), vec![filter])).unwrap();
}

/// Pipelines that run inside each other take turns on the stack of one thread.
#[test]
fn the_pipelines_of_views_inside_each_other_are_counted_together() {
    let nested = |from: &str, levels: usize| {
        (1..levels).fold(lookup(from), |inner, _| {
            rawdoc! { "$lookup": { "from": "c", "as": "x", "pipeline": [inner] } }
        })
    };
    let mut names = Names::default();
    names.add("v", view("c", &[nested("c", 10)])).unwrap();
    names.add("w", view("c", &[nested("v", 5)])).unwrap();
    let read = |levels| of_source(&names, Aggregate::new(namespace("c"), vec![nested("w", levels)]));
    read(5).unwrap();
    assert_eq!(read(6).unwrap_err().code(), Code::MaxSubPipelineDepthExceeded);
}

#[tokio::test]
async fn all_requests_to_views_count_the_pipelines() {
    let nested = |from: &str, levels: usize| {
        (1..levels)
            .fold(lookup(from), |inner, _| rawdoc! { "$lookup": { "from": "c", "as": "x", "pipeline": [inner] } })
    };
    let store = MemoryStore::new(Sources::seeded(1));
    for (name, definition) in [("v", view("c", &[nested("c", 10)])), ("w", view("c", &[nested("v", 11)]))] {
        let options = CollectionOptions { view: Some(definition), ..CollectionOptions::default() };
        store.create_collection(&namespace(name), options).await.unwrap();
    }
    let (w, all) = (|| namespace("w"), || rawdoc! {});
    let errors = [
        store.aggregate(Aggregate::new(w(), Vec::new())).await.err(),
        store.find(Find::new(w(), all())).await.err(),
        store.count_matching(&w(), all()).await.err(),
        store
            .distinct(Distinct { namespace: w(), key: "a".to_owned(), filter: all(), hint: None, collation: None })
            .await
            .err(),
    ];
    for error in errors {
        assert_eq!(error.unwrap().code(), Code::MaxSubPipelineDepthExceeded);
    }
    assert!(store.find(Find::new(namespace("v"), all())).await.is_ok());
}

#[test]
fn a_find_in_a_view_has_no_natural_order() {
    let mut names = Names::default();
    names.add("v", view("c", &[])).unwrap();
    let find = Find { sort: rawdoc! { "$natural": 1 }, ..Find::new(namespace("v"), rawdoc! {}) };
    let error = resolve(&names, &namespace("v")).unwrap().unwrap().find(find).unwrap_err();
    assert_eq!(error.code(), Code::InvalidPipelineOperator);
}

use std::cmp::Ordering;

use bson::{Document, RawDocumentBuf, doc};
use proptest::prelude::*;

use super::{Collation, VARIABLE};
use crate::expression::testing::context;
use crate::{CompileOptions, Filter, Pipeline, Sort, Update, UpdateOptions, UpdateSource, key, order};

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn collation(document: Document) -> Collation {
    Collation::parse(&raw(&document)).unwrap().unwrap()
}

fn variables(document: Document) -> RawDocumentBuf {
    let mut variables = RawDocumentBuf::new();
    variables.append(VARIABLE, raw(&document));
    variables
}

fn sorted(document: Document, mut words: Vec<&str>) -> Vec<&str> {
    let collation = collation(document);
    words.sort_by(|one, other| collation.compare(one, other));
    words
}

#[test]
fn strings_are_in_the_order_of_the_language() {
    // The phone book of Germany takes ä for ae, the dictionary for a; in Sweden it is a letter after z.
    let words = vec!["Az", "Zoo", "Äpfel", "Afel"];
    assert_eq!(sorted(doc! { "locale": "de" }, words.clone()), ["Afel", "Äpfel", "Az", "Zoo"]);
    assert_eq!(sorted(doc! { "locale": "de@collation=phonebook" }, words.clone()), ["Äpfel", "Afel", "Az", "Zoo"]);
    assert_eq!(sorted(doc! { "locale": "sv" }, words), ["Afel", "Az", "Zoo", "Äpfel"]);
    // Canadian French compares accents from the end of the word.
    let words = vec!["côté", "coté", "côte", "cote"];
    assert_eq!(sorted(doc! { "locale": "fr" }, words.clone()), ["cote", "coté", "côte", "côté"]);
    assert_eq!(sorted(doc! { "locale": "fr_CA" }, words), ["cote", "côte", "coté", "côté"]);
    let words = vec!["a10", "a9", "a1"];
    assert_eq!(sorted(doc! { "locale": "en" }, words.clone()), ["a1", "a10", "a9"]);
    assert_eq!(sorted(doc! { "locale": "en", "numericOrdering": true }, words), ["a1", "a9", "a10"]);
    let words = vec!["a", "A", "b", "B"];
    assert_eq!(sorted(doc! { "locale": "en" }, words.clone()), ["a", "A", "b", "B"]);
    assert_eq!(sorted(doc! { "locale": "en", "caseFirst": "upper" }, words.clone()), ["A", "a", "B", "b"]);
    // Danish has capital letters first, without being asked.
    assert_eq!(sorted(doc! { "locale": "da" }, words.clone()), ["A", "a", "B", "b"]);
    assert_eq!(sorted(doc! { "locale": "da", "caseFirst": "off" }, words), ["a", "A", "b", "B"]);
}

#[test]
fn the_strength_says_which_differences_count() {
    let order = |document: Document, one: &str, other: &str| collation(document).compare(one, other);
    for (strength, accent, case) in [
        (1, Ordering::Equal, Ordering::Equal),
        (2, Ordering::Less, Ordering::Equal),
        (3, Ordering::Less, Ordering::Less),
    ] {
        let of = |one, other| order(doc! { "locale": "en", "strength": strength }, one, other);
        assert_eq!((of("e", "é"), of("e", "E")), (accent, case), "{strength}");
    }
    let cases = doc! { "locale": "en", "strength": 1, "caseLevel": true };
    assert_eq!((order(cases.clone(), "e", "é"), order(cases, "e", "E")), (Ordering::Equal, Ordering::Less));
    let shifted = |strength: i32| doc! { "locale": "en", "strength": strength, "alternate": "shifted" };
    assert_eq!(order(shifted(3), "a-b c", "abc"), Ordering::Equal);
    assert_ne!(order(shifted(4), "a-b c", "abc"), Ordering::Equal);
    let mut spaces = shifted(3);
    spaces.insert("maxVariable", "space");
    assert_eq!((order(spaces.clone(), "a b", "ab"), order(spaces, "a-b", "ab").is_eq()), (Ordering::Equal, false));
}

#[test]
fn a_collation_has_all_fields() {
    let full = collation(doc! { "locale": "en_US", "strength": 2 });
    let expected = doc! {
        "locale": "en_US", "caseLevel": false, "caseFirst": "off", "strength": 2, "numericOrdering": false,
        "alternate": "non-ignorable", "maxVariable": "punct", "normalization": false, "backwards": false, "version": "57.1",
    };
    assert_eq!(full.document(), &*raw(&expected));
    assert_eq!(collation(expected), full, "the full document is the same collation");
    assert_ne!(collation(doc! { "locale": "en_US" }), full);
    let field = |document: Document, name: &str| {
        collation(document).document().get(name).unwrap().unwrap().as_str().map(str::to_owned)
    };
    assert_eq!(field(doc! { "locale": "th" }, "alternate").as_deref(), Some("shifted"));
    for simple in [doc! { "locale": "simple" }, doc! {}] {
        assert_eq!(Collation::parse(&raw(&simple)).unwrap(), None);
    }
}

#[test]
fn invalid_collations_are_refused() {
    for (document, code) in [
        (doc! { "strength": 2 }, 40_414),
        (doc! { "locale": 5 }, 14),
        (doc! { "locale": "xx" }, 2),
        (doc! { "locale": "" }, 2),
        (doc! { "locale": "en-US" }, 2),
        (doc! { "locale": "en_us" }, 2),
        (doc! { "locale": "en_US_x" }, 2),
        (doc! { "locale": "de@collation=none" }, 2),
        (doc! { "locale": "de@calendar=buddhist" }, 2),
        (doc! { "locale": "simple", "strength": 1 }, 2),
        (doc! { "locale": "en", "strength": 0 }, 51_024),
        (doc! { "locale": "en", "strength": 6 }, 51_024),
        (doc! { "locale": "en", "strength": "1" }, 14),
        (doc! { "locale": "en", "caseLevel": "yes" }, 14),
        (doc! { "locale": "en", "caseFirst": "first" }, 2),
        (doc! { "locale": "en", "caseFirst": "upper", "strength": 2 }, 2),
        (doc! { "locale": "en", "alternate": "none" }, 2),
        (doc! { "locale": "en", "maxVariable": "symbol" }, 2),
        (doc! { "locale": "en", "backwards": true, "strength": 1 }, 2),
        (doc! { "locale": "en", "backwards": true }, 238),
        (doc! { "locale": "fr_CA", "backwards": false }, 238),
        (doc! { "locale": "en", "version": "60" }, 161),
        (doc! { "locale": "en", "other": 1 }, 40_415),
    ] {
        let error = Collation::parse(&raw(&document)).unwrap_err();
        assert_eq!(error.code().0, code, "{document}: {error}");
    }
    for name in
        ["fr_CA", "sr_Latn_RS", "zh_Hant", "en_US_POSIX", "es@collation=traditional", "de_AT@collation=phonebook"]
    {
        collation(doc! { "locale": name });
    }
}

fn matches(filter: Document, document: Document) -> bool {
    let variables = variables(doc! { "locale": "en", "strength": 2 });
    let options = CompileOptions::with_variables(&variables).unwrap();
    let filter = Filter::compile(&raw(&filter), &options).unwrap();
    filter.matches(&raw(&document), &context().with_variables(variables)).unwrap()
}

#[test]
fn filters_compare_strings_by_the_collation() {
    let bob = || doc! { "a": "bob" };
    for (filter, found) in [
        (doc! { "a": "BOB" }, true),
        (doc! { "a": { "$ne": "BOB" } }, false),
        (doc! { "a": { "$in": ["x", "Bob", "BOA"] } }, true),
        (doc! { "$or": [{ "a": "x" }, { "a": "Bob" }] }, true),
        (doc! { "a": { "$gte": "BOB", "$lte": "BOB" } }, true),
        (doc! { "a": { "$gt": "BOB" } }, false),
        (doc! { "a": { "$lt": "Boc" } }, true),
        (doc! { "a": { "$regex": "BOB" } }, false),
        (doc! { "a": { "$in": ["A", "BOC"] } }, false),
        (doc! { "$expr": { "$eq": ["$a", "BOB"] } }, true),
        (doc! { "$expr": { "$in": ["$a", ["BOB"]] } }, true),
        (doc! { "$expr": { "$eq": [{ "$cmp": ["$a", "Bob"] }, 0] } }, true),
        (doc! { "$expr": { "$setIsSubset": [["$a"], ["BOB"]] } }, true),
        (doc! { "$expr": { "$eq": [{ "$size": { "$setUnion": [["$a"], ["BOB"]] } }, 1] } }, true),
        (doc! { "$expr": { "$eq": [{ "$indexOfArray": [["x", "$a"], "BOB"] }, 1] } }, true),
    ] {
        assert_eq!(matches(filter.clone(), bob()), found, "{filter}");
    }
    assert!(matches(doc! { "a": { "$all": ["X", "Y"] } }, doc! { "a": ["y", "x"] }));
    assert!(matches(doc! { "a": { "$elemMatch": { "b": "X" } } }, doc! { "a": [{ "b": "x" }] }));
    assert!(matches(doc! { "a": { "b": "X" } }, doc! { "a": { "b": "x" } }), "also inside values");
    assert!(!matches(doc! { "a": { "b": "X" } }, doc! { "a": { "B": "x" } }), "but not names of fields");
}

fn piped(stages: Vec<Document>, documents: Vec<Document>) -> Vec<Document> {
    let variables = variables(doc! { "locale": "en", "strength": 2 });
    let stages: Vec<_> = stages.iter().map(raw).collect();
    let pipeline = Pipeline::compile(&stages, &CompileOptions::with_variables(&variables).unwrap()).unwrap();
    let context = context().with_variables(variables);
    let found = pipeline.chain(&context).unwrap().run(documents.iter().map(raw)).unwrap();
    found.iter().map(|document| Document::try_from(document.as_ref()).unwrap()).collect()
}

#[test]
fn stages_compare_strings_by_the_collation() {
    let words = || ["b", "A", "a", "C", "B"].map(|word| doc! { "w": word }).to_vec();
    let sorted = piped(vec![doc! { "$sort": { "w": 1 } }], words());
    assert_eq!(sorted, ["A", "a", "b", "B", "C"].map(|word| doc! { "w": word }), "equal ones stay as they were");
    let groups = piped(vec![doc! { "$sortByCount": "$w" }, doc! { "$limit": 2 }], words());
    assert_eq!(groups, [doc! { "_id": "b", "count": 2 }, doc! { "_id": "A", "count": 2 }]);
    let all = doc! {
        "_id": null, "set": { "$addToSet": "$w" }, "min": { "$min": "$w" }, "max": { "$max": "$w" },
        "least": { "$minN": { "input": "$w", "n": 2 } }, "last": { "$bottom": { "sortBy": { "w": 1 }, "output": "$w" } },
    };
    let expected =
        doc! { "_id": null, "set": ["b", "A", "C"], "min": "A", "max": "C", "least": ["A", "a"], "last": "C" };
    assert_eq!(piped(vec![doc! { "$group": all }], words()), [expected]);
    let buckets = doc! { "$bucket": { "groupBy": "$w", "boundaries": ["a", "B", "d"] } };
    let expected = [doc! { "_id": "a", "count": 2 }, doc! { "_id": "B", "count": 3 }];
    assert_eq!(piped(vec![buckets], words()), expected);
}

fn updated(update: Document, document: Document) -> Document {
    let variables = variables(doc! { "locale": "en", "strength": 2 });
    let compile = CompileOptions::with_variables(&variables).unwrap();
    let update = raw(&update);
    let options = UpdateOptions { compile, ..UpdateOptions::default() };
    let update = Update::compile(UpdateSource::Document(&update), &options).unwrap();
    let context = context().with_variables(variables);
    let applied = update.apply(&raw(&document), Default::default(), &context).unwrap();
    Document::try_from(applied.document.as_ref()).unwrap()
}

#[test]
fn updates_compare_strings_by_the_collation() {
    for (update, before, after) in [
        (doc! { "$addToSet": { "a": "X" } }, doc! { "a": ["x"] }, doc! { "a": ["x"] }),
        (doc! { "$addToSet": { "a": { "$each": ["Y", "y"] } } }, doc! { "a": ["x"] }, doc! { "a": ["x", "Y"] }),
        (doc! { "$addToSet": { "a": { "$each": ["Y", "y"] } } }, doc! {}, doc! { "a": ["Y"] }),
        (doc! { "$pull": { "a": "X" } }, doc! { "a": ["x", "y"] }, doc! { "a": ["y"] }),
        (doc! { "$pull": { "a": { "$gt": "X" } } }, doc! { "a": ["x", "y"] }, doc! { "a": ["x"] }),
        (doc! { "$pullAll": { "a": ["X"] } }, doc! { "a": ["x", "y"] }, doc! { "a": ["y"] }),
        (doc! { "$min": { "a": "B" } }, doc! { "a": "a" }, doc! { "a": "a" }),
        (doc! { "$max": { "a": "B" } }, doc! { "a": "a" }, doc! { "a": "B" }),
        (doc! { "$push": { "a": { "$each": [], "$sort": 1 } } }, doc! { "a": ["b", "A"] }, doc! { "a": ["A", "b"] }),
    ] {
        assert_eq!(updated(update.clone(), before), after, "{update}");
    }
}

#[test]
fn conditions_on_strings_are_necessary_only_under_the_same_collation() {
    let variables = variables(doc! { "locale": "en", "strength": 2 });
    let options = CompileOptions::with_variables(&variables).unwrap();
    let source = doc! { "a": "x", "b": 1, "c": { "$in": [1, "x"] }, "d": { "$elemMatch": { "e": 1 } }, "$expr": { "$lt": ["$f", "x"] } };
    let filter = Filter::compile(&raw(&source), &options).unwrap();
    let context = context().with_variables(variables);
    let paths = |collation: Option<&Collation>| {
        let conditions = filter.necessary_conditions_under(&context, collation);
        let mut paths: Vec<String> = conditions.fields().map(|field| field.path().to_string()).collect();
        paths.extend(conditions.whole_comparisons("f").map(|_| "f".to_owned()));
        paths
    };
    assert_eq!(paths(None), ["b"]);
    assert_eq!(paths(Some(&collation(doc! { "locale": "en" }))), ["b"]);
    assert_eq!(paths(filter.collation()), ["a", "b", "c", "d", "f"]);
}

fn any_collation() -> impl Strategy<Value = Collation> {
    let locale = prop::sample::select(vec!["en", "de@collation=phonebook", "sv", "fr_CA", "th", "zh", "da"]);
    (locale, 1..=5_i32, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(locale, strength, level, numeric, shifted)| {
        let alternate = if shifted { "shifted" } else { "non-ignorable" };
        collation(doc! {
            "locale": locale, "strength": strength, "caseLevel": level, "numericOrdering": numeric, "alternate": alternate,
        })
    })
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof!["[aAäÄáàeéÉE0-9 -]{0,6}", "\\PC{0,4}", "[\0a中が가e\u{301}]{0,4}"]
}

proptest! {
    #[test]
    fn a_collation_is_a_total_order_and_sort_keys_have_it(
        collation in any_collation(),
        (one, two, three) in (word(), word(), word()),
    ) {
        let order = |left: &str, right: &str| collation.compare(left, right);
        prop_assert_eq!(order(&one, &one), Ordering::Equal);
        prop_assert_eq!(order(&one, &two), order(&two, &one).reverse());
        if order(&one, &two).is_le() && order(&two, &three).is_le() {
            prop_assert!(order(&one, &three).is_le());
        }
        let keys = [&one, &two].map(|text| {
            let mut key = Vec::new();
            collation.append_sort_key(text, &mut key);
            key
        });
        prop_assert_eq!(keys[0].cmp(&keys[1]), order(&one, &two));
    }

    #[test]
    fn keys_of_values_are_in_the_order_of_values(
        collation in any_collation(),
        (one, two) in (crate::arbitrary::value(), crate::arbitrary::value()),
        (left, right) in (word(), word()),
    ) {
        let documents = [doc! { "v": [one, left] }, doc! { "v": [two, right] }].map(|document| raw(&document));
        let values = [documents[0].get("v").unwrap().unwrap(), documents[1].get("v").unwrap().unwrap()];
        let keys = values.map(|value| key::encoded_under(value, Some(&collation)));
        let expected = order::compare_under(values[0], values[1], Some(&collation));
        prop_assert_eq!(keys[0].cmp(&keys[1]), expected);
    }
}

#[test]
fn a_sort_has_the_order_of_its_collation_in_both_directions() {
    let bytes = Sort::compile(&raw(&doc! { "v": 1 })).unwrap();
    let english = bytes.clone().under(Some(&collation(doc! { "locale": "en" })));
    let descending = Sort::compile(&raw(&doc! { "v": -1 })).unwrap().under(english.collation());
    let (small, large) = (raw(&doc! { "v": "a" }), raw(&doc! { "v": "B" }));
    assert_eq!(bytes.compare(&small, &large).unwrap(), Ordering::Greater);
    assert_eq!(english.compare(&small, &large).unwrap(), Ordering::Less);
    assert_eq!(descending.compare(&small, &large).unwrap(), Ordering::Greater);
}

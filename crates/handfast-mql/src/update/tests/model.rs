//! Updates against a model that works on `bson::Document`s, one operator after the other; and random updates.

use bson::{Bson, Document, doc};
use proptest::prelude::*;

use super::super::{Applied, Update, UpdateOptions, UpdateSource};
use super::{Case, PLAIN, at, context, raw};
use crate::arbitrary::{document, value};
use crate::{Code, MatchPosition, Result};

/// An operator at a path.
#[derive(Clone, Debug)]
struct Step {
    operator: &'static str,
    path: Vec<&'static str>,
    operand: Bson,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Viable,
    Ignore,
}

impl Step {
    fn missing(&self) -> Missing {
        match self.operator {
            "$unset" => Missing::Ignore,
            "$pop" | "$pullAll" => Missing::Viable,
            _ => Missing::Create,
        }
    }

    /// Returns the value after the operator, or the code of an error.
    fn result(&self, current: Option<&Bson>) -> Result<Option<Bson>, i32> {
        let number = |value: &Bson| value.as_i32();
        let list = |value: &Bson| value.as_array().cloned();
        let order = |a: &Bson, b: &Bson| {
            let pair = raw(&doc! { "a": a.clone(), "b": b.clone() });
            crate::order::compare(pair.get("a").unwrap().unwrap(), pair.get("b").unwrap().unwrap())
        };
        Ok(match (self.operator, current) {
            ("$set", _) => Some(self.operand.clone()),
            ("$unset", _) => None,
            ("$inc", None) => Some(self.operand.clone()),
            ("$inc", Some(Bson::Double(value))) => {
                Some(Bson::Double(value + f64::from(self.operand.as_i32().unwrap_or(0))))
            }
            ("$inc", Some(value)) => Some(Bson::Int32(number(value).ok_or(14)? + self.operand.as_i32().unwrap_or(0))),
            ("$min" | "$max", None) => Some(self.operand.clone()),
            ("$min", Some(value)) if order(&self.operand, value).is_lt() => Some(self.operand.clone()),
            ("$max", Some(value)) if order(&self.operand, value).is_gt() => Some(self.operand.clone()),
            ("$min" | "$max", Some(value)) => Some(value.clone()),
            ("$push", None) => Some(Bson::Array(vec![self.operand.clone()])),
            ("$push", Some(value)) => {
                let mut items = list(value).ok_or(2)?;
                items.push(self.operand.clone());
                Some(Bson::Array(items))
            }
            ("$addToSet", None) => Some(Bson::Array(vec![self.operand.clone()])),
            ("$addToSet", Some(value)) => {
                let mut items = list(value).ok_or(2)?;
                if !items.iter().any(|item| order(item, &self.operand).is_eq()) {
                    items.push(self.operand.clone());
                }
                Some(Bson::Array(items))
            }
            ("$pop", Some(value)) => {
                let mut items = list(value).ok_or(14)?;
                items.pop();
                Some(Bson::Array(items))
            }
            ("$pullAll", Some(value)) => {
                let gone = list(&self.operand).unwrap_or_default();
                let mut items = list(value).ok_or(2)?;
                items.retain(|item| !gone.iter().any(|gone| order(item, gone).is_eq()));
                Some(Bson::Array(items))
            }
            (other, _) => panic!("no model of {other}"),
        })
    }

    fn blocked(&self) -> Result<(), i32> {
        if self.missing() == Missing::Ignore { Ok(()) } else { Err(28) }
    }

    fn apply(&self, value: &mut Bson, path: &[&str]) -> Result<(), i32> {
        let (name, rest) = path.split_first().unwrap();
        if *name == "$[]" {
            let Bson::Array(items) = value else { return Err(2) };
            for at in 0..items.len() {
                self.apply(value, &[&[at.to_string().as_str()], rest].concat())?;
            }
            return Ok(());
        }
        match value {
            Bson::Document(document) => {
                match document.get_mut(*name) {
                    Some(current) if rest.is_empty() => match self.result(Some(current))? {
                        Some(new) => *current = new,
                        None => {
                            document.remove(*name);
                        }
                    },
                    Some(inner) => self.apply(inner, rest)?,
                    None => {
                        if let Some(new) = self.create(rest)? {
                            document.insert(*name, new);
                        }
                    }
                }
                Ok(())
            }
            Bson::Array(items) => {
                let Ok(index) = name.parse::<usize>() else { return self.blocked() };
                match items.get_mut(index) {
                    Some(current) if rest.is_empty() => *current = self.result(Some(current))?.unwrap_or(Bson::Null),
                    Some(inner) => self.apply(inner, rest)?,
                    None => {
                        if let Some(new) = self.create(rest)? {
                            items.resize(index, Bson::Null);
                            items.push(new);
                        }
                    }
                }
                Ok(())
            }
            _ => self.blocked(),
        }
    }

    /// Returns the value for a missing field, or `None` if it stays missing.
    fn create(&self, rest: &[&str]) -> Result<Option<Bson>, i32> {
        match rest.split_first() {
            _ if rest.contains(&"$[]") => Err(2),
            _ if self.missing() != Missing::Create => Ok(None),
            None => self.result(None),
            Some((name, rest)) => Ok(self.create(rest)?.map(|inner| Bson::Document(doc! { *name: inner }))),
        }
    }
}

fn model(document: &Document, steps: &[Step]) -> Result<Document, i32> {
    for (index, step) in steps.iter().enumerate() {
        for other in &steps[..index] {
            let common = step.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
            let (mine, others) = (step.path.get(common), other.path.get(common));
            match (mine, others) {
                (None, _) | (_, None) => return Err(40),
                (Some(mine), Some(others)) if (*mine == "$[]") != (*others == "$[]") => return Err(40),
                _ => {}
            }
        }
    }
    let mut steps = steps.to_vec();
    // The names are letters and single digits: digits come first.
    steps.sort_by(|a, b| a.path.cmp(&b.path));
    let mut value = Bson::Document(document.clone());
    for step in &steps {
        step.apply(&mut value, &step.path)?;
    }
    let Bson::Document(document) = value else { panic!("a document stays one") };
    Ok(document)
}

fn update_of(steps: &[Step]) -> Document {
    let mut update = Document::new();
    for step in steps {
        let fields = update.entry(step.operator.to_owned()).or_insert_with(|| Bson::Document(Document::new()));
        if let Bson::Document(fields) = fields {
            fields.insert(step.path.join("."), step.operand.clone());
        }
    }
    update
}

fn step() -> impl Strategy<Value = Step> {
    let first = prop::sample::select(vec!["a", "b", "c"]);
    let next = prop::sample::select(vec!["a", "b", "c", "0", "1", "2", "$[]"]);
    let operator =
        prop::sample::select(vec!["$set", "$unset", "$inc", "$min", "$max", "$push", "$addToSet", "$pop", "$pullAll"]);
    (operator, first, proptest::collection::vec(next, 0..3), value()).prop_map(|(operator, first, rest, value)| {
        let operand = match operator {
            "$inc" => Bson::Int32(value.as_i32().unwrap_or(2)),
            "$pop" => Bson::Int32(1),
            "$pullAll" => Bson::Array(value.as_array().cloned().unwrap_or_else(|| vec![value])),
            _ => value,
        };
        Step { operator, path: [vec![first], rest].concat(), operand }
    })
}

/// Generates documents that resemble updates.
fn wild_update() -> impl Strategy<Value = Document> {
    let name = prop_oneof![
        4 => prop::sample::select(super::super::compile::KNOWN.to_vec()).prop_map(str::to_owned),
        1 => "[$a.\\[\\]]{0,4}",
    ];
    let path = prop_oneof![
        "(a|b|_id|0|\\$|\\$\\[\\]|\\$\\[x\\]){1}(\\.(a|b|1|007|\\$|\\$\\[\\]|\\$\\[x\\]|\\$ref)){0,3}",
        "[a$.\\[\\]0]{0,6}",
    ];
    let clause = prop::sample::select(vec!["$each", "$slice", "$sort", "$position", "$type", "and", "or", "xor", "a"]);
    let clauses = proptest::collection::vec((clause, value()), 0..4).prop_map(|clauses| {
        Bson::Document(clauses.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    });
    let operand = prop_oneof![value(), clauses];
    let fields = proptest::collection::vec((path, operand), 0..3)
        .prop_map(|fields| Bson::Document(fields.into_iter().collect()));
    let body = prop_oneof![8 => fields, 1 => value()];
    proptest::collection::vec((name, body), 0..3).prop_map(|operators| operators.into_iter().collect())
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn updates_agree_with_the_model(document in document(), steps in proptest::collection::vec(step(), 1..4)) {
        // An update document cannot have the same operator twice at one path.
        let written: usize = update_of(&steps).values().map(|fields| fields.as_document().map_or(0, Document::len)).sum();
        prop_assume!(written == steps.len());
        let actual = PLAIN.run(&document, &update_of(&steps));
        match model(&document, &steps) {
            Ok(expected) => {
                let applied = actual.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
                prop_assert_eq!(&applied.document, &raw(&expected));
                prop_assert_eq!(applied.modified, raw(&document) != raw(&expected));
            }
            Err(code) => {
                let error = actual.expect_err("the model refuses it");
                if steps.len() == 1 {
                    prop_assert_eq!(error.code(), Code(code));
                }
            }
        }
    }

    #[test]
    fn no_update_panics(document in document(), update in wild_update(), filter in value(), position in 0..3_usize) {
        let mut document = document;
        document.insert("_id", 1);
        let case = Case { position: MatchPosition { array_index: Some(position) }, filters: vec![raw(&doc! { "x": filter })] };
        for case in [case, at(position)] {
            if let Ok(applied) = case.run(&document, &update) {
                crate::depth::check(applied.document.as_bytes(), Default::default()).unwrap();
                prop_assert_eq!(applied.document.get_i32("_id").unwrap(), 1);
            }
        }
    }

        #[test]
    fn an_idempotent_update_changes_nothing_the_second_time(document in document(), update in wild_update()) {
        let options = UpdateOptions::default();
        if let Ok(compiled) = Update::compile(UpdateSource::Document(&raw(&update)), &options)
            && compiled.is_idempotent()
            && let Ok(once) = compiled.apply(&raw(&document), MatchPosition::default(), &context())
        {
            let twice = compiled.apply(&once.document, MatchPosition::default(), &context());
            // A replacement without `_id` counts as a change also if it changes nothing.
            let modified = compiled.is_replacement() && raw(&update) != once.document;
            prop_assert_eq!(twice, Ok(Applied { document: once.document, modified }));
        }
    }
}

//! Refuses JSON in which an object has a name twice: which of the two values counts would be a guess.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value in which no object has a name twice, read for this check alone.
pub(crate) struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctNames)
    }
}

impl<'de> Visitor<'de> for DistinctNames {
    type Value = DistinctNames;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<DistinctNames>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("the name {name:?} is there twice in one object")));
            }
            names.insert(name);
            fields.next_value::<DistinctNames>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::DistinctNames;

    #[test]
    fn a_name_is_there_once_in_each_object() {
        for json in
            [r#"{"a": {"a": [1, {"a": null}, {"a": true}]}, "b": -1.5e3}"#, r#"[{}, "a", "a", 18446744073709551615]"#]
        {
            assert!(serde_json::from_str::<DistinctNames>(json).is_ok(), "{json}");
        }
        for json in [r#"{"a": 1, "b": 2, "a": 1}"#, r#"[{"x": {"a": 1, "\u0061": 2}}]"#] {
            let error = serde_json::from_str::<DistinctNames>(json).err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.contains("the name \"a\" is there twice")), "{json}");
        }
        assert!(serde_json::from_str::<DistinctNames>("{").is_err());
    }
}

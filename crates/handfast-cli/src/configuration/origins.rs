//! The origins of web pages: a text with spaces between them, or a list of texts.
//!
//! ```text
//! --http-allow-origin https://a.example --http-allow-origin https://b.example
//! HANDFAST_HTTP_ALLOW_ORIGIN="https://a.example https://b.example"
//! http-allow-origin = ["https://a.example", "https://b.example"]
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::stores::Texts;

/// The origin of a web page, as browsers send it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Origin(pub(crate) String);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_origin = host.is_some_and(|host| {
            let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(&byte);
            !host.is_empty() && host.bytes().all(letters)
        });
        match is_origin {
            true => Ok(Origin(text.to_owned())),
            false => Err("expected a scheme and a host, such as https://example.org, in lower case and without a path"
                .to_owned()),
        }
    }
}

/// The origins whose pages may send requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Origins(pub(crate) Vec<Origin>);

impl<'de> Deserialize<'de> for Origins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Texts::deserialize(deserializer)?.into_parts();
        let origins = parts
            .iter()
            .map(|part| part.parse().map_err(|why| de::Error::custom(format!("'{part}' is no origin: {why}"))));
        let origins = origins.collect::<Result<Vec<_>, D::Error>>()?;
        if origins.is_empty() {
            return Err(de::Error::custom("must not be empty"));
        }
        Ok(Origins(origins))
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|origin| origin.0.as_str()).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn an_origin_is_what_browsers_send() {
        for good in ["https://example.org", "http://localhost:3000", "http://[::1]:8080"] {
            assert_eq!(good.parse(), Ok(Origin(good.to_owned())));
        }
        for bad in ["", "*", "null", "example.org", "https://", "https://example.org/", "https://Example.org"] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}

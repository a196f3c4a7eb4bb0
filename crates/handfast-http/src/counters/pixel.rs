//! A view that a page counts by a picture, for readers whose browsers run no scripts.
//!
//! A picture is a `GET` without a token, and any page of any site can have it. So it counts only for kinds that the service was told, and only one
//! view at a time; the rules for visitors, bots and clients hold for it as for other views.

use axum::http::Method;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use handfast_counters::{IdempotencyKey, View};

use super::Service;
use super::handlers::{Reader, count_of_reader, item, user_agent};
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// A picture of one transparent pixel (GIF89a).
const PICTURE: &[u8; 43] = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\
    \x21\xf9\x04\x01\x00\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b";

pub(super) async fn count(service: &Service, call: Call) -> Result<Response, Problem> {
    let item = item(&call)?;
    if !service.pixels.contains(&item.kind) {
        let detail =
            format!("pictures do not count views of {}: the service allows it for other kinds, or none", item.kind);
        return Err(Problem::new(ProblemKind::NotFound, detail));
    }
    let key = call.query("key").map(IdempotencyKey::new).transpose()?;
    // A program that asks for the head of the picture, such as a checker of links, shows it to nobody.
    if call.method != Method::HEAD {
        let view = View { key, ..View::new(item, 1, service.counters.today()?)? };
        // A page cannot add a header to the request of a picture, and another client could choose a new name for each view.
        let reader = Reader { name: None, address: call.address, agent: &user_agent(&call) };
        count_of_reader(service, view, reader).await?;
    }
    // A picture from a cache would count nothing.
    Ok(([(CONTENT_TYPE, "image/gif"), (CACHE_CONTROL, "no-store")], PICTURE).into_response())
}

//! The page of a document, and its change: it is replaced if it is still the one that was shown.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Bson, Document, RawDocumentBuf, doc};

use super::super::reads;
use super::super::{Api, Result, path_id};
use super::browse::read_document;
use super::html::html;
use super::layout::{Page, Section, redirect};
use super::parts::notice;
use super::values::{editable, id_in_path, indented};
use crate::id::shown;
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// The largest document that can be edited, in bytes of BSON: the page has it twice.
const EDITED_BYTES_MAX: usize = 1024 * 1024;

const NOTICES: [(&str, &str); 1] = [("saved", "The document is saved.")];

/// Returns the path of the page of a document.
pub(super) fn path(database: &str, collection: &str, id: &Bson) -> String {
    format!("{}/documents/{}", super::browse::path(database, collection), id_in_path(id))
}

pub(super) async fn page(api: &Api, call: Call) -> Result<Response> {
    let (database, collection, id) = (call.path("database"), call.path("collection"), path_id(&call, "document")?);
    let mut client = api.client(&call).await?;
    let found = reads::one(&mut client, database, collection, &id).await?;
    let document = found.ok_or_else(|| missing(&id))?;
    let text = indented(&editable(&document));
    form(&call, &id, &document, &text, None)
}

fn missing(id: &Bson) -> Problem {
    Problem::new(ProblemKind::Missing, format!("there is no document {}", shown(id)))
}

/// Returns the page with a text to edit, and what is wrong with it.
fn form(call: &Call, id: &Bson, document: &Document, text: &str, wrong: Option<&str>) -> Result<Response> {
    let (database, collection) = (call.path("database"), call.path("collection"));
    let written = RawDocumentBuf::try_from(document).map_err(|error| {
        Problem::new(ProblemKind::Failed, format!("the document cannot be written as BSON: {error}"))
    })?;
    let bytes = written.as_bytes();
    let mut page = Page::new(Section::Collections, shown(id)).below("Collections", "/collections");
    page = page.below(format!("{database}.{collection}"), super::browse::path(database, collection));
    if wrong.is_some() {
        page = page.with_status(ProblemKind::Conflict.status());
    }
    page.body.push(&notice(call.query("notice"), &NOTICES));
    if let Some(wrong) = wrong {
        html!(page.body, "<p class=\"panel bad\" role=\"alert\" id=\"wrong\">{}</p>", wrong);
    }
    if let Some(why) = not_editable(document, bytes) {
        html!(page.body, "<p class=\"note\">{}</p><pre class=\"json\" tabindex=\"0\">{}</pre>", why, text);
        return Ok(page.answer());
    }
    html!(
        page.body,
        "<form class=\"edit\" method=\"post\" action=\"{}\"><label for=\"text\">The document in Extended JSON</label>\
         <textarea id=\"text\" name=\"text\" rows=\"{}\" spellcheck=\"false\" autocapitalize=\"off\" aria-describedby=\"edit-note\">\n{}</textarea>\
         <input type=\"hidden\" name=\"was\" value=\"{}\"><p id=\"edit-note\" class=\"note\">It is replaced if it is still as it is shown here.</p>\
         <div class=\"buttons\"><button class=\"primary\">Save</button></div></form>",
        path(database, collection, id),
        text.lines().count().clamp(8, 40),
        text,
        BASE64.encode(bytes)
    );
    Ok(page.answer())
}

/// Returns why a document cannot be edited as text.
fn not_editable(document: &Document, bytes: &[u8]) -> Option<String> {
    if bytes.len() > EDITED_BYTES_MAX {
        return Some(format!("The document has {} bytes: too many to edit it here.", bytes.len()));
    }
    let read_back = Bson::try_from(editable(document)).ok().and_then(|value| match value {
        Bson::Document(document) => RawDocumentBuf::try_from(&document).ok(),
        _ => None,
    });
    if read_back.is_some_and(|document| document.as_bytes() == bytes) {
        return None;
    }
    let why = "The document cannot be edited here: it has a value that Extended JSON does not preserve, such as a \
               sub-document with a field named $oid. Change it with a driver.";
    Some(why.to_owned())
}

/// Replaces a document, if it is still the one that was shown.
pub(super) async fn save(api: &Api, call: Call) -> Result<Response> {
    let id = path_id(&call, "document")?;
    let fields = call.form()?;
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let (Some(text), Some(was)) = (field("text"), field("was")) else {
        return Err(Problem::invalid("the form has no text, or not the document as it was"));
    };
    let was = BASE64.decode(was).ok().and_then(|bytes| RawDocumentBuf::from_bytes(bytes).ok());
    let was = was.and_then(|was| Document::try_from(was).ok());
    let was = was.ok_or_else(|| Problem::invalid("the form does not have the document as it was"))?;
    let new = match read_document(text) {
        Ok(new) => new,
        Err(why) => return form(&call, &id, &was, text, Some(&format!("the text {why}"))),
    };
    if new.keys().any(|name| name.starts_with('$')) {
        return form(&call, &id, &was, text, Some("a document has no fields whose names begin with $"));
    }
    let unchanged = doc! { "$eq": ["$$ROOT", { "$literal": was.clone() }] };
    let statement = doc! { "q": { "_id": { "$eq": id.clone() }, "$expr": unchanged }, "u": new.clone() };
    let reply = api.page_step(&call, doc! { "update": call.path("collection"), "updates": [statement] }).await?;
    if let Some(error) = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document()) {
        let why = error.get_str("errmsg").unwrap_or("the store has refused it");
        return form(&call, &id, &was, text, Some(why));
    }
    if reads::integer(&reply, "n") == 0 {
        let mut client = api.client(&call).await?;
        let now = reads::one(&mut client, call.path("database"), call.path("collection"), &id).await?;
        let now = now.ok_or_else(|| missing(&id))?;
        // The answer to the same form was lost.
        if without_id(&now).eq(without_id(&new)) {
            return Ok(redirect(&format!(
                "{}?notice=saved",
                path(call.path("database"), call.path("collection"), &id)
            )));
        }
        let why = format!(
            "somebody has changed the document since it was shown, so it was not saved. Your text is below; saving it again replaces the document as it is now: {}",
            editable(&now)
        );
        return form(&call, &id, &now, text, Some(&why));
    }
    Ok(redirect(&format!("{}?notice=saved", path(call.path("database"), call.path("collection"), &id))))
}

/// Returns the fields of a document beside its `_id`, which a form may leave out.
fn without_id(document: &Document) -> impl Iterator<Item = (&String, &Bson)> {
    document.iter().filter(|(name, _)| *name != "_id")
}

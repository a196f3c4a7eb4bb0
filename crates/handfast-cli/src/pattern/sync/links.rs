//! Which links a command goes by: those that the application has declared, and those that flags say.

use anyhow::Result;
use bson::{Bson, Document};
use handfast_patterns::sync_flag::DeclaredLink;
use handfast_patterns::{Link, OnDelete, SyncFlag};
use handfast_store::Namespace;

use super::Subject;
use crate::arguments::{LinkOnDelete, LinkText};
use crate::exit::Usage;

/// The links of a command. One that changes copies takes flags away, and so must know all that the application knows: it goes by what is
/// declared, and refuses to go by anything else.
///
/// # Errors
/// Nothing is declared and not all is said; something else is said than is declared.
pub(super) async fn links(subject: &Subject, said: &[LinkText], changes: bool) -> Result<Vec<Link>> {
    let declared = SyncFlag::declared(subject.store.clone(), &subject.namespace).await?;
    if said.is_empty() {
        return all_declared(subject, declared, changes);
    }
    let mut links = Vec::new();
    for text in said {
        links.push(read(subject, text, declared.as_deref(), changes).await?);
    }
    if let (Some(declared), true) = (&declared, changes) {
        compare(declared, &links)?;
    }
    Ok(links)
}

fn all_declared(subject: &Subject, declared: Option<Vec<DeclaredLink>>, changes: bool) -> Result<Vec<Link>> {
    let Some(declared) = declared else {
        return Err(usage(format!("the application has declared no links of {}: say them", subject.namespace)));
    };
    match declared.iter().find_map(|link| link.functions().first()) {
        Some(function) if changes => Err(usage(format!(
            "{function} is computed by a function of the application: say all links, with an expression for it (\"computed\")"
        ))),
        Some(_) => {
            let links: Vec<_> = declared.iter().filter_map(|link| without_functions(link.link())).collect();
            if links.is_empty() {
                let why = "every copied field is computed by a function of the application";
                return Err(usage(format!("{why}: say links, with expressions for them (\"computed\")")));
            }
            Ok(links)
        }
        None => Ok(declared.into_iter().map(|link| link.link().clone()).collect()),
    }
}

/// What there is to see of a declared link for who cannot compute all of it; none if that is nothing.
fn without_functions(link: &Link) -> Option<Link> {
    link.copied_fields().next()?;
    Some(link.clone().on_delete(seen_of(link, link.deleted())))
}

/// Of a rule that was declared what is about fields that this link names: who only looks needs not know of the others.
fn seen_of(link: &Link, declared: &OnDelete) -> OnDelete {
    match declared {
        OnDelete::Set(values) => {
            let named = |copy: &str| link.copied_fields().any(|field| field == copy);
            let values = values.iter().filter(|(copy, _)| named(copy));
            OnDelete::Set(values.map(|(copy, value)| (copy.clone(), value.clone())).collect())
        }
        OnDelete::Unset | OnDelete::Remove | OnDelete::Keep => declared.clone(),
    }
}

fn compare(declared: &[DeclaredLink], links: &[Link]) -> Result<()> {
    let named = |target: &Namespace, key: &str| format!("the link to {} by {key}", target.collection());
    for link in links {
        let (target, key) = (link.target(), link.foreign_key());
        let differs = match declared.iter().find(|declared| declared.is_of(target, key)) {
            Some(declared) => declared.differs_from(link),
            None => Some("no such link is declared".to_owned()),
        };
        if let Some(differs) = differs {
            return Err(usage(format!("{}: {differs}", named(target, key))));
        }
    }
    let is_said = |one: &&DeclaredLink| links.iter().any(|link| one.is_of(link.target(), link.foreign_key()));
    match declared.iter().find(|one| !is_said(one)) {
        Some(one) => {
            let named = named(one.link().target(), one.link().foreign_key());
            Err(usage(format!("{named} is declared, too: say all links, or none")))
        }
        None => Ok(()),
    }
}

async fn read(subject: &Subject, text: &LinkText, declared: Option<&[DeclaredLink]>, changes: bool) -> Result<Link> {
    let LinkText { collection, key, fields, computed, on_delete, version, syncing } = text;
    let mut link = Link::new(subject.beside(collection, "--link").await?, key);
    for (main, copy) in fields {
        link = link.field(main, copy);
    }
    for (copy, expression) in computed {
        let wrong = |error: &dyn std::fmt::Display| usage(format!("{copy} of {collection}: {error}"));
        let expression = Bson::try_from(expression.clone()).map_err(|error| wrong(&error))?;
        link = link.expression(copy, expression).map_err(|error| wrong(&error))?;
    }
    let version = version.clone().unwrap_or_else(|| format!("{key}Version"));
    let syncing = syncing.clone().unwrap_or_else(|| format!("{key}Syncing"));
    let as_declared = || {
        let declared = declared?.iter().find(|declared| declared.is_of(link.target(), key))?;
        Some(declared.link().deleted().clone())
    };
    let on_delete = match (on_delete, as_declared()) {
        (Some(said), _) => rule(said)?,
        (None, Some(declared)) if changes => declared,
        (None, Some(declared)) => seen_of(&link, &declared),
        (None, None) if changes && declared.is_none() => {
            return Err(usage(format!(
                "the application has declared no links: say what becomes of {collection} when their main document is deleted \
                 (\"onDelete\")"
            )));
        }
        (None, None) => OnDelete::default(),
    };
    Ok(link.with_fields(version, syncing).on_delete(on_delete))
}

fn rule(said: &LinkOnDelete) -> Result<OnDelete> {
    Ok(match said {
        LinkOnDelete::Unset => OnDelete::Unset,
        LinkOnDelete::Remove => OnDelete::Remove,
        LinkOnDelete::Keep => OnDelete::Keep,
        LinkOnDelete::Set(values) => {
            let value = |(copy, value): (&String, &serde_json::Value)| {
                let value = Bson::try_from(value.clone()).map_err(|error| usage(format!("{copy}: {error}")))?;
                Ok((copy.clone(), value))
            };
            OnDelete::Set(values.iter().map(value).collect::<Result<Document>>()?)
        }
    })
}

fn usage(what: String) -> anyhow::Error {
    Usage(format!("--link: {what}")).into()
}

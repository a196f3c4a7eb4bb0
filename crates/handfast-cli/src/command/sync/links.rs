//! The links of a command: those that the application has declared, and those of flags.

use anyhow::Result;
use bson::{Bson, Document};
use handfast_patterns::sync_flag::{Declared, DeclaredLink};
use handfast_patterns::{Link, OnDelete, SyncFlag};
use handfast_store::Namespace;

use super::arguments::{LinkOnDelete, LinkText};
use crate::command::pattern::OpenedCollection;
use crate::exit::{CannotSee, Usage};
use crate::store::ensure_there;

/// The links of a command.
pub(super) struct Links {
    pub(super) links: Vec<Link>,
    /// Copies of declared links that the command does not check.
    pub(super) missed: Vec<String>,
    /// The settings that the application has recorded, if any.
    pub(super) recorded: Option<Declared>,
}

/// Returns the links of a command, which must agree with the declared ones. A command that changes copies clears flags, and so must know
/// all that the application knows; a command that only reads may know some links, and some fields of each.
///
/// # Errors
/// Returns a usage error if no links are declared and a flag is missing, if a flag contradicts the declaration, or if a collection does not exist.
pub(super) async fn links(collection: &OpenedCollection, said: &[LinkText], changes: bool) -> Result<Links> {
    let recorded = SyncFlag::declared(collection.store.clone(), &collection.namespace).await?;
    let declared = recorded.as_ref().map(|recorded| recorded.links.as_slice());
    let mut links = Vec::new();
    for text in said {
        let link = read(collection, text, declared, changes).await?;
        if let Some(declared) = declared {
            compare(declared, &link, changes)?;
        }
        links.push(link);
    }
    if let (Some(declared), true, false) = (declared, changes, said.is_empty()) {
        ensure_all_said(declared, &links)?;
    }
    if said.is_empty() {
        links = all_declared(collection, declared, changes)?;
        ensure_collections(collection, &links).await?;
    }
    let missed = declared.into_iter().flatten().flat_map(|declared| missed(declared, &links)).collect();
    Ok(Links { links, missed, recorded })
}

/// Returns the copies of a declared link that are not among these links.
fn missed(declared: &DeclaredLink, links: &[Link]) -> Vec<String> {
    let of = links.iter().find(|link| declared.is_of(link.target(), link.foreign_key()));
    let is_seen = |copy: &str| of.is_some_and(|link| link.copied_fields().any(|seen| seen == copy));
    let collection = declared.link().target().collection();
    let missed = |copy: String| {
        let is_function = declared.functions().contains(&copy);
        let why = if is_function { ", which a function of the application computes" } else { "" };
        format!("{copy} of {collection}{why}")
    };
    declared.copies().into_iter().filter(|copy| !is_seen(copy)).map(missed).collect()
}

/// Fails if documents lack the fields that the links name, before anything is compared or changed. A declaration suffices for commands that
/// only read flags, and for a sweep, which does what the application does.
pub(super) async fn ensure_seen(flag: &SyncFlag, is_declared: bool, judges_copies: bool, page: u32) -> Result<()> {
    if is_declared && !judges_copies {
        return Ok(());
    }
    match flag.unknown_name(is_declared, page).await? {
        Some(unseen) if is_declared => Err(CannotSee(format!("the declared links: {unseen}")).into()),
        Some(unseen) => Err(CannotSee(format!("--link: {unseen}")).into()),
        None => Ok(()),
    }
}

/// Fails if a collection of a declared link is missing; those of flags were checked before.
async fn ensure_collections(collection: &OpenedCollection, links: &[Link]) -> Result<()> {
    for link in links {
        ensure_there(&*collection.store, link.target(), "in the declared links")
            .await
            .map_err(|error| CannotSee(format!("the copies of {} cannot be read: {error}", collection.namespace)))?;
    }
    Ok(())
}

fn all_declared(collection: &OpenedCollection, declared: Option<&[DeclaredLink]>, changes: bool) -> Result<Vec<Link>> {
    let Some(declared) = declared else {
        return Err(usage(format!(
            "the application has declared no links of {}: give them with this flag",
            collection.namespace
        )));
    };
    match declared.iter().find_map(|link| link.functions().first()) {
        Some(function) if changes => Err(usage(format!(
            "{function} is computed by a function of the application: give all links, with an aggregation expression for it (\"computed\")"
        ))),
        Some(_) => {
            let links: Vec<_> = declared.iter().filter_map(|link| without_functions(link.link())).collect();
            if links.is_empty() {
                let why = "every copied field is computed by a function of the application";
                return Err(usage(format!(
                    "{why}: give the links, with aggregation expressions for these fields (\"computed\")"
                )));
            }
            Ok(links)
        }
        None => Ok(declared.iter().map(|link| link.link().clone()).collect()),
    }
}

/// Returns a declared link without its computed fields; none if no field is left.
fn without_functions(link: &Link) -> Option<Link> {
    link.copied_fields().next()?;
    Some(link.clone().on_delete(for_fields_of(link, link.deleted())))
}

/// Returns the declared rule for the fields of this link: a command that only reads need not know the others.
fn for_fields_of(link: &Link, declared: &OnDelete) -> OnDelete {
    match declared {
        OnDelete::Set(values) => {
            let named = |copy: &str| link.copied_fields().any(|field| field == copy);
            let values = values.iter().filter(|(copy, _)| named(copy));
            OnDelete::Set(values.map(|(copy, value)| (copy.clone(), value.clone())).collect())
        }
        OnDelete::Unset | OnDelete::Remove | OnDelete::Keep => declared.clone(),
    }
}

fn named(target: &Namespace, key: &str) -> String {
    format!("the link to {} by {key}", target.collection())
}

/// Fails if a link of a flag differs from the declared one.
fn compare(declared: &[DeclaredLink], link: &Link, changes: bool) -> Result<()> {
    let (target, key) = (link.target(), link.foreign_key());
    let differs = match declared.iter().find(|declared| declared.is_of(target, key)) {
        Some(declared) if changes => declared.differs_from(link),
        Some(declared) => declared.contradicts(link).or_else(|| {
            let rule = declared.link().deleted();
            let is_other = ![rule, &for_fields_of(link, rule)].contains(&link.deleted());
            is_other.then(|| format!("onDelete is declared as {rule:?}, and the flag says {:?}", link.deleted()))
        }),
        None => {
            let named: Vec<_> =
                declared.iter().map(|one| named(one.link().target(), one.link().foreign_key())).collect();
            Some(format!("this link is not declared; there is {}", named.join(", ")))
        }
    };
    match differs {
        Some(differs) => Err(usage(format!("{}: {differs}", named(target, key)))),
        None => Ok(()),
    }
}

/// Fails if a declared link is not among those of flags.
fn ensure_all_said(declared: &[DeclaredLink], links: &[Link]) -> Result<()> {
    let is_said = |one: &&DeclaredLink| links.iter().any(|link| one.is_of(link.target(), link.foreign_key()));
    match declared.iter().find(|one| !is_said(one)) {
        Some(one) => {
            let named = named(one.link().target(), one.link().foreign_key());
            Err(usage(format!("{named} is declared, too: give all links, or none")))
        }
        None => Ok(()),
    }
}

async fn read(
    collection: &OpenedCollection,
    text: &LinkText,
    declared: Option<&[DeclaredLink]>,
    changes: bool,
) -> Result<Link> {
    let LinkText { collection: copies, key, fields, computed, on_delete, version, syncing } = text;
    let mut link = Link::new(collection.sibling(copies, "--link").await?, key);
    for (main, copy) in fields {
        link = link.field(main, copy);
    }
    for (copy, expression) in computed {
        let wrong = |error: &dyn std::fmt::Display| usage(format!("{copy} of {copies}: {error}"));
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
        (None, Some(declared)) => for_fields_of(&link, &declared),
        (None, None) if changes && declared.is_none() => {
            return Err(usage(format!(
                "the application has declared no links: \"onDelete\" must say what happens to {copies} when their main document is deleted"
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

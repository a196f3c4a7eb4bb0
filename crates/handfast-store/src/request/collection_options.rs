//! The options of a collection: its default collation and its validator, or the definition of a view.

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use handfast_mql::{Code, Collation};

use crate::{Error, Result};

/// The options of a collection, or of a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionOptions {
    /// The definition, if this is a view. A view has no validator.
    pub view: Option<ViewDefinition>,
    /// The collation of requests and indexes that name none, with all of its fields; `None` compares the bytes of strings. That of a
    /// view is in its definition.
    pub collation: Option<RawDocumentBuf>,
    /// The condition that new states of documents have to fulfil: a filter, empty for none.
    pub validator: RawDocumentBuf,
    /// The documents that the validator is applied to.
    pub validation_level: ValidationLevel,
    /// The consequence for a document that does not fulfil the validator.
    pub validation_action: ValidationAction,
}

impl CollectionOptions {
    /// Refuses options for a store that has none.
    ///
    /// # Errors
    /// `NotImplemented` (238) unless all are the defaults.
    pub fn refuse_any(&self) -> Result<()> {
        if *self == CollectionOptions::default() {
            return Ok(());
        }
        let text = match self {
            CollectionOptions { view: Some(_), .. } => NO_VIEWS,
            CollectionOptions { collation: Some(_), .. } => {
                "a collection in another server has no default collation here: name the collation in requests and indexes"
            }
            _ => "a collection in another server has no validator here: create it on that server",
        };
        Err(Error::command(Code::NotImplemented, text))
    }

    /// Returns the options as `listCollections` shows them: those that differ from the defaults, and all of a validator.
    pub fn to_document(&self) -> RawDocumentBuf {
        let CollectionOptions { view, collation, validator, validation_level, validation_action } = self;
        let mut document = RawDocumentBuf::new();
        if let Some(ViewDefinition { on, pipeline, collation }) = view {
            document.append(cstr!("viewOn"), on.as_str());
            document.append(cstr!("pipeline"), pipeline.iter().cloned().collect::<RawArrayBuf>());
            if let Some(collation) = collation {
                document.append(cstr!("collation"), collation.clone());
            }
            return document;
        }
        if let Some(collation) = collation {
            document.append(cstr!("collation"), collation.clone());
        }
        let without_validator = CollectionOptions { collation: collation.clone(), ..CollectionOptions::default() };
        if *self != without_validator {
            document.append(cstr!("validator"), validator.clone());
            document.append(cstr!("validationLevel"), validation_level.name());
            document.append(cstr!("validationAction"), validation_action.name());
        }
        document
    }

    /// Reads options that [`CollectionOptions::to_document`] has written.
    ///
    /// # Errors
    /// `NotImplemented` (238) for an unknown option, `BadValue` (2) for an invalid one.
    pub fn from_document(document: &RawDocument) -> Result<Self> {
        let mut options = CollectionOptions::default();
        if document.get("viewOn").map_err(handfast_mql::Error::from)?.is_some() {
            options.view = Some(ViewDefinition::from_document(document)?);
            return Ok(options);
        }
        for element in document {
            let (name, value) = element.map_err(handfast_mql::Error::from)?;
            let name = name.as_str();
            let invalid = || invalid(name);
            match name {
                "collation" => {
                    let given = value.as_document().ok_or_else(invalid)?;
                    options.collation = Collation::parse(given)?.map(|collation| collation.document().to_owned());
                }
                "validator" => options.validator = value.as_document().ok_or_else(invalid)?.to_owned(),
                "validationLevel" => {
                    options.validation_level = value.as_str().and_then(ValidationLevel::of_name).ok_or_else(invalid)?;
                }
                "validationAction" => {
                    options.validation_action =
                        value.as_str().and_then(ValidationAction::of_name).ok_or_else(invalid)?;
                }
                _ => {
                    let text = format!("the collection option '{name}' is not supported");
                    return Err(Error::command(Code::NotImplemented, text));
                }
            }
        }
        Ok(options)
    }

    /// Returns the options after a change.
    #[must_use]
    pub fn modified(&self, change: &ModifyValidator) -> Self {
        CollectionOptions {
            validator: change.validator.clone().unwrap_or_else(|| self.validator.clone()),
            validation_level: change.level.unwrap_or(self.validation_level),
            validation_action: change.action.unwrap_or(self.validation_action),
            view: self.view.clone(),
            collation: self.collation.clone(),
        }
    }
}

fn invalid(name: &str) -> Error {
    Error::command(Code::BadValue, format!("the collection option '{name}' is invalid"))
}

/// A view: a name for the output of a pipeline over a collection, or over another view, of the same database.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewDefinition {
    /// The collection or view that the pipeline reads. It need not exist.
    pub on: String,
    /// The stages.
    pub pipeline: Vec<RawDocumentBuf>,
    /// The collation of all requests to the view, with all of its fields; `None` compares the bytes of strings.
    pub collation: Option<RawDocumentBuf>,
}

impl ViewDefinition {
    fn from_document(document: &RawDocument) -> Result<Self> {
        let mut view = ViewDefinition { on: String::new(), pipeline: Vec::new(), collation: None };
        for element in document {
            let (name, value) = element.map_err(handfast_mql::Error::from)?;
            let name = name.as_str();
            match name {
                "viewOn" => value.as_str().ok_or_else(|| invalid(name))?.clone_into(&mut view.on),
                "pipeline" => {
                    for stage in value.as_array().ok_or_else(|| invalid(name))? {
                        let stage = stage.map_err(handfast_mql::Error::from)?;
                        view.pipeline.push(stage.as_document().ok_or_else(|| invalid(name))?.to_owned());
                    }
                }
                "collation" => view.collation = Some(value.as_document().ok_or_else(|| invalid(name))?.to_owned()),
                _ => {
                    let text = format!("option not supported on a view: {name}");
                    return Err(Error::command(Code::InvalidOptions, text));
                }
            }
        }
        Ok(view)
    }

    /// Returns the definition after a change.
    #[must_use]
    pub fn modified(&self, change: &ModifyView) -> Self {
        ViewDefinition {
            on: change.on.clone().unwrap_or_else(|| self.on.clone()),
            pipeline: change.pipeline.clone().unwrap_or_else(|| self.pipeline.clone()),
            collation: self.collation.clone(),
        }
    }
}

/// A new definition of a view; `None` leaves a part as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModifyView {
    /// The collection or view that the pipeline reads.
    pub on: Option<String>,
    /// The stages.
    pub pipeline: Option<Vec<RawDocumentBuf>>,
}

/// The refusal of a view by a store in another server.
const NO_VIEWS: &str = "there are no views in front of another server: run the pipeline of the view";

impl ModifyView {
    /// Refuses a change for a store that has no views.
    ///
    /// # Errors
    /// `NotImplemented` (238) if anything is to be changed.
    pub fn refuse_any(&self) -> Result<()> {
        if *self == ModifyView::default() { Ok(()) } else { Err(Error::command(Code::NotImplemented, NO_VIEWS)) }
    }
}

/// New settings of the validator of a collection; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModifyValidator {
    /// The condition; empty for none.
    pub validator: Option<RawDocumentBuf>,
    /// The documents that it is applied to.
    pub level: Option<ValidationLevel>,
    /// The consequence for a document that does not fulfil it.
    pub action: Option<ValidationAction>,
}

impl ModifyValidator {
    /// Refuses a change for a store that has no validators.
    ///
    /// # Errors
    /// `NotImplemented` (238) if anything is to be changed.
    pub fn refuse_any(&self) -> Result<()> {
        CollectionOptions::default().modified(self).refuse_any()
    }
}

/// Whether a write applies the validator of the collection (`bypassDocumentValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// The validator is applied.
    #[default]
    Apply,
    /// The validator is not applied.
    Bypass,
}

/// The documents that a validator is applied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidationLevel {
    /// None.
    Off,
    /// Those that are inserted or changed.
    #[default]
    Strict,
    /// Those that are inserted, and those that fulfil it before their change.
    Moderate,
}

impl ValidationLevel {
    /// Returns MongoDB's name.
    pub fn name(self) -> &'static str {
        match self {
            ValidationLevel::Off => "off",
            ValidationLevel::Strict => "strict",
            ValidationLevel::Moderate => "moderate",
        }
    }

    /// Returns the level with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [ValidationLevel::Off, ValidationLevel::Strict, ValidationLevel::Moderate]
            .into_iter()
            .find(|level| level.name() == name)
    }
}

/// The consequence for a document that does not fulfil the validator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidationAction {
    /// The write is refused.
    #[default]
    Error,
    /// The write is made, and the log has a warning.
    Warn,
}

impl ValidationAction {
    /// Returns MongoDB's name.
    pub fn name(self) -> &'static str {
        match self {
            ValidationAction::Error => "error",
            ValidationAction::Warn => "warn",
        }
    }

    /// Returns the action with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [ValidationAction::Error, ValidationAction::Warn].into_iter().find(|action| action.name() == name)
    }
}

//! The options of a collection: its validator.

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;

use crate::{Error, Result};

/// The options of a collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionOptions {
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
        let text = "a collection in another server has no validator here: create it on that server";
        Err(Error::command(Code::NotImplemented, text))
    }

    /// Returns the options as `listCollections` shows them: those that differ from the defaults, and all of a validator.
    pub fn to_document(&self) -> RawDocumentBuf {
        let CollectionOptions { validator, validation_level, validation_action } = self;
        let mut document = RawDocumentBuf::new();
        if *self != CollectionOptions::default() {
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
        for element in document {
            let (name, value) = element.map_err(handfast_mql::Error::from)?;
            let name = name.as_str();
            let invalid = || Error::command(Code::BadValue, format!("the collection option '{name}' is invalid"));
            match name {
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
        }
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

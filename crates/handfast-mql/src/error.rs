//! Errors of the language, with MongoDB's codes and code names.
//!
//! Codes are part of the protocol: drivers decide by them. The names and numbers are those of MongoDB's published
//! `error_codes.yml` table; four- and five-digit numbers are the "location" codes that MongoDB's documentation and
//! drivers' tests show for single checks, and are named `LocationNNNNN`.

use std::borrow::Cow;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error code as MongoDB numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal),+ $(,)?) => {
        #[allow(non_upper_case_globals, missing_docs)]
        impl Code {
            $(pub const $name: Code = Code($number);)+

            fn known_name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    GraphContainsCycle = 5,
    HostUnreachable = 6,
    HostNotFound = 7,
    UnknownError = 8,
    FailedToParse = 9,
    CannotMutateObject = 10,
    UserNotFound = 11,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    IllegalOperation = 20,
    LockTimeout = 24,
    InvalidBSON = 22,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    RoleNotFound = 31,
    CannotBackfillArray = 34,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    NoMatchingDocument = 47,
    NamespaceExists = 48,
    MaxTimeMSExpired = 50,
    DollarPrefixedFieldName = 52,
    InvalidIdField = 53,
    NotSingleValueField = 54,
    EmptyFieldName = 56,
    DottedFieldName = 57,
    CommandNotFound = 59,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    UnknownReplWriteConcern = 79,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    NetworkTimeout = 89,
    ShutdownInProgress = 91,
    OperationFailed = 96,
    CannotSatisfyWriteConcern = 100,
    NotExactValueField = 111,
    WriteConflict = 112,
    CommandNotSupported = 115,
    ConflictingOperationInProgress = 117,
    NamespaceNotSharded = 118,
    DocumentValidationFailure = 121,
    ReadConcernMajorityNotAvailableYet = 134,
    ExceededMemoryLimit = 146,
    ViewDepthLimitExceeded = 165,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperator = 168,
    InvalidIndexSpecificationOption = 197,
    NoSuchSession = 206,
    IllegalOpMsgFlag = 223,
    QueryFeatureNotAllowed = 224,
    IncompleteTransactionHistory = 217,
    TransactionTooOld = 225,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    FailPointSetFailed = 266,
    QueryPlanKilled = 175,
    PrimarySteppedDown = 189,
    MaxSubPipelineDepthExceeded = 232,
    TooManyDocumentSequences = 233,
    CursorKilled = 237,
    NotImplemented = 238,
    SnapshotTooOld = 239,
    SnapshotUnavailable = 246,
    ConversionFailure = 241,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    TransactionTooLarge = 257,
    InvalidResumeToken = 260,
    TooManyLogicalSessions = 261,
    ChangeStreamFatalError = 280,
    ChangeStreamHistoryLost = 286,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    IndexBuildAborted = 276,
    APIVersionError = 322,
    APIStrictError = 323,
    MechanismUnavailable = 334,
    DataCorruptionDetected = 354,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    CursorInUse = 12051,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    NotWritablePrimary = 10107,
    MergeStageNoMatchingDocument = 13113,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
    OutOfDiskSpace = 14031,
    SocketException = 9001,
}

impl Code {
    /// Returns MongoDB's name for the code; `LocationNNNNN` for the codes of single checks, which have no name of their own.
    pub fn name(self) -> Cow<'static, str> {
        match self.known_name() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("Location{}", self.0)),
        }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// A filter, update, pipeline or value that the language does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: Code,
    message: String,
}

impl Error {
    /// Creates an error with MongoDB's code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into() }
    }

    /// Returns MongoDB's code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the text for people. Programs decide by [`Error::code`].
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<bson::error::Error> for Error {
    /// Converts an error about bytes that are no BSON to MongoDB's `InvalidBSON` (22).
    fn from(error: bson::error::Error) -> Self {
        Error::new(Code::InvalidBSON, format!("invalid BSON: {error}"))
    }
}

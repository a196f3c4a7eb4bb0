//! The arguments of `handfast user`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::configuration::Span;
use crate::flags::OpenFlags;

/// The commands on users. No other process can open the directory of a running server: there, the commands createUser, updateUser
/// and dropUser do the same.
#[derive(Debug, Subcommand)]
pub(crate) enum UserArguments {
    /// Add a user
    #[command(after_help = "Example:\n  handfast user add ann --data /srv/handfast --role readWrite@shop")]
    Add(Box<UserAddArguments>),
    /// Give a user a new password
    #[command(after_help = "Example:\n  handfast user password ann --data /srv/handfast")]
    Password(Box<UserPasswordArguments>),
    /// Remove a user
    #[command(after_help = "Example:\n  handfast user remove ann --data /srv/handfast")]
    Remove(Box<UserRemoveArguments>),
    /// Make a token of a user for HTTP, and print it this once
    #[command(
        after_help = "Programs send it as `Authorization: Bearer TOKEN`. While the server runs, the user makes tokens by POST /v1/tokens.\n\n\
        Example:\n  handfast user add-token ann --name reports --expires 90d --data /srv/handfast"
    )]
    AddToken(Box<UserAddTokenArguments>),
    /// Revoke a token of a user
    #[command(after_help = "Example:\n  handfast user revoke-token ann 9f86d081884c7d65 --data /srv/handfast")]
    RevokeToken(Box<UserRevokeTokenArguments>),
    /// List the tokens of a user, without their secrets
    #[command(after_help = "Example:\n  handfast user tokens ann --data /srv/handfast")]
    Tokens(Box<UserTokensArguments>),
    /// List all users with their roles
    #[command(after_help = "Example:\n  handfast user list --data /srv/handfast")]
    List(Box<UserListArguments>),
}

/// The user of a command.
#[derive(Args, Debug)]
pub(crate) struct UserFlags {
    /// Name of the user
    pub(crate) name: String,
    /// Database that the user belongs to, which is the authSource of a connection string
    #[arg(long, value_name = "NAME", default_value = "admin")]
    pub(crate) database: String,
}

/// The source of a password.
#[derive(Args, Debug)]
pub(crate) struct PasswordFlags {
    /// File whose first line is the password [default: ask, or read the first line of standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// `handfast user add`.
#[derive(Args, Debug)]
pub(crate) struct UserAddArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    #[command(flatten)]
    pub(crate) user: UserFlags,
    /// Role of the user: ROLE@DATABASE, or ROLE for the user's own database; may be repeated
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
    #[command(flatten)]
    pub(crate) password: PasswordFlags,
}

/// `handfast user password`.
#[derive(Args, Debug)]
pub(crate) struct UserPasswordArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    #[command(flatten)]
    pub(crate) user: UserFlags,
    #[command(flatten)]
    pub(crate) password: PasswordFlags,
}

/// `handfast user remove`.
#[derive(Args, Debug)]
pub(crate) struct UserRemoveArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    #[command(flatten)]
    pub(crate) user: UserFlags,
}

/// `handfast user add-token`.
#[derive(Args, Debug)]
pub(crate) struct UserAddTokenArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    #[command(flatten)]
    pub(crate) user: UserFlags,
    /// What the token is for
    #[arg(id = "purpose", long = "name", value_name = "TEXT")]
    pub(crate) purpose: String,
    /// Time after which it is refused [default: never]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<Span>,
}

/// `handfast user revoke-token`.
#[derive(Args, Debug)]
pub(crate) struct UserRevokeTokenArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    #[command(flatten)]
    pub(crate) user: UserFlags,
    /// Id of the token
    pub(crate) token: String,
}

/// `handfast user tokens`.
#[derive(Args, Debug)]
pub(crate) struct UserTokensArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    #[command(flatten)]
    pub(crate) user: UserFlags,
}

/// `handfast user list`.
#[derive(Args, Debug)]
pub(crate) struct UserListArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
}

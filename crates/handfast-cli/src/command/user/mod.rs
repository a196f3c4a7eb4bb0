//! `handfast user`: the users of a data directory.

pub(super) mod arguments;
mod tokens;

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use handfast_mql::Code;
use handfast_server::auth::users::Change;
use handfast_server::auth::{Password, Role, User, UserName, Users};
use handfast_store::Sources;
use serde_json::json;

use self::arguments::{PasswordFlags, UserArguments, UserFlags};
use crate::configuration::Settings;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::store::{self, Directory};

/// The size from which a file or an input is not read as a password.
const PASSWORD_BYTES_MAX: u64 = 4096;

pub(super) async fn run(settings: &Settings, arguments: &UserArguments, console: Console) -> anyhow::Result<Exit> {
    // Arguments are checked before the directory is opened, or a password asked for.
    match arguments {
        UserArguments::Add(arguments) => {
            let name = name(&arguments.user)?;
            let roles = arguments.roles.iter().map(|role| parse_role(role, &arguments.user.database));
            let roles = roles.collect::<anyhow::Result<Vec<_>>>()?;
            let password = read_password(&arguments.password, &name)?;
            let sources = Sources::system()?;
            // The first user may be added before the directory exists.
            let embedded = store::open_directory(settings, sources).await?;
            let users = Users::new(Arc::new(embedded.clone()));
            users.add(name.clone(), password, roles, None).await?;
            embedded.close().await?;
            console.report(|| format!("added {name}"), &json!({ "added": name.to_string() }))?;
        }
        UserArguments::Password(arguments) => {
            let name = name(&arguments.user)?;
            Directory::of(settings).ensure_exists()?;
            let password = Some(read_password(&arguments.password, &name)?);
            let (embedded, users) = open(settings).await?;
            users.change(&name, Change { password, ..Change::default() }).await?;
            embedded.close().await?;
            console.report(|| format!("changed {name}"), &json!({ "changed": name.to_string() }))?;
        }
        UserArguments::Remove(arguments) => {
            let name = name(&arguments.user)?;
            let (embedded, users) = open(settings).await?;
            users.remove(&name).await?;
            embedded.close().await?;
            console.report(|| format!("removed {name}"), &json!({ "removed": name.to_string() }))?;
        }
        UserArguments::AddToken(arguments) => return tokens::add(settings, arguments, console).await,
        UserArguments::RevokeToken(arguments) => return tokens::revoke(settings, arguments, console).await,
        UserArguments::Tokens(arguments) => return tokens::list(settings, arguments, console).await,
        UserArguments::List(_) => {
            let (embedded, users) = open(settings).await?;
            let list = users.list(None).await?;
            embedded.close().await?;
            console.report(|| text(&list), &json(&list))?;
        }
    }
    Ok(Exit::Good)
}

async fn open(settings: &Settings) -> anyhow::Result<(handfast_embedded::EmbeddedStore, Users)> {
    let embedded = Directory::of(settings).open_existing(Sources::system()?).await?;
    let users = Users::new(Arc::new(embedded.clone()));
    Ok((embedded, users))
}

fn name(flags: &UserFlags) -> anyhow::Result<UserName> {
    UserName::new(&flags.database, &flags.name).map_err(|error| Usage(error.message().to_owned()).into())
}

/// Parses a role: `readWrite@shop`, or `readWrite` for the database of the user.
fn parse_role(text: &str, database: &str) -> anyhow::Result<Role> {
    let (name, database) = text.split_once('@').unwrap_or((text, database));
    Role::new(name, database).map_err(|error| {
        let mut text = format!("--role: {}", error.message());
        if error.code() == Code::RoleNotFound {
            let names: Vec<_> = Role::names().collect();
            text = format!(
                "{text}; the roles are {}; those for all databases and for the server need the database admin",
                names.join(", ")
            );
        }
        Usage(text).into()
    })
}

/// Reads the password from the file, the terminal, or standard input.
fn read_password(flags: &PasswordFlags, name: &UserName) -> anyhow::Result<Password> {
    if let Some(path) = &flags.password_file {
        return from_file(path);
    }
    if !std::io::stdin().is_terminal() {
        return first_line(&mut std::io::stdin().lock()).context("cannot read the password from standard input");
    }
    let password = rpassword::prompt_password(format!("password of {name}: ")).context("cannot ask for a password")?;
    let again = rpassword::prompt_password("once more: ").context("cannot ask for a password")?;
    ensure!(password == again, Usage("the two passwords differ".to_owned()));
    check(password)
}

fn from_file(path: &Path) -> anyhow::Result<Password> {
    let failed = || format!("--password-file: cannot read the password from {}", path.display());
    let mut file = std::fs::File::open(path).map(std::io::BufReader::new).with_context(failed)?;
    first_line(&mut file).with_context(failed)
}

fn first_line(input: &mut impl BufRead) -> anyhow::Result<Password> {
    let mut line = String::new();
    input.take(PASSWORD_BYTES_MAX).read_line(&mut line)?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    check(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn check(password: String) -> anyhow::Result<Password> {
    ensure!(!password.is_empty(), Usage("the password must not be empty".to_owned()));
    Ok(Password::new(password))
}

fn text(users: &[User]) -> String {
    if users.is_empty() {
        return "no users".to_owned();
    }
    let line = |user: &User| {
        let roles: Vec<_> = user.roles.iter().map(ToString::to_string).collect();
        format!("{}  {}", user.name, roles.join(", "))
    };
    users.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn json(users: &[User]) -> serde_json::Value {
    users
        .iter()
        .map(|user| {
            let roles: Vec<_> =
                user.roles.iter().map(|role| json!({ "role": role.name(), "db": role.database() })).collect();
            json!({ "user": user.name.name(), "db": user.name.database(), "roles": roles })
        })
        .collect()
}

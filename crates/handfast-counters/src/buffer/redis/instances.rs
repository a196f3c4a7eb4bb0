//! The instances that run, as keys of Redis.
//!
//! ```text
//!   hf:{.instances}:names   set of names
//!   hf:{.instances}:NAME    text "LIFETIME|UPTIME|VIEWS|SAVED|ADDRESS,ADDRESS|VERSION", times in milliseconds. It expires after its lifetime
//! ```
//!
//! No kind begins with a dot, so these keys are those of none; they are in one slot of a cluster. The set has the names of all that live, and of some that do not: an announcement sets
//! the key before it adds the name, and a reader removes names without a key. A name that is removed although its instance lives is added by the next
//! announcement. The time since an announcement is its lifetime without what is left of it.

use std::net::SocketAddr;
use std::time::Duration;

use redis::Value;

use super::servers::Servers;
use super::{answer, text};
use crate::Result;
use crate::buffer::{Instance, InstanceReport, Owner};

const NAMES: &str = "hf:{.instances}:names";
/// The maximum number of names that are read at a time: more instances than anybody runs.
const NAMES_MAX: usize = 1_000;
/// The maximum size of the name of an instance, in bytes.
const NAME_BYTES_MAX: usize = 64;

fn key(name: &str) -> String {
    format!("hf:{{.instances}}:{name}")
}

/// Announces an instance.
///
/// # Errors
/// [`Error::Buffer`](crate::Error::Buffer).
pub(super) async fn announce(servers: &Servers, report: &InstanceReport, lifetime: Duration) -> Result<()> {
    let name = report.name.as_str();
    let lifetime = super::millis(lifetime);
    let mut set = redis::cmd("SET");
    set.arg(key(name)).arg(written(report, &lifetime)).arg("PX").arg(&lifetime);
    servers.send(NAMES, &set).await?;
    servers.send(NAMES, redis::cmd("SADD").arg(NAMES).arg(name)).await.map(drop)
}

/// Removes an instance.
///
/// # Errors
/// [`Error::Buffer`](crate::Error::Buffer).
pub(super) async fn withdraw(servers: &Servers, name: &Owner) -> Result<()> {
    servers.send(NAMES, redis::cmd("DEL").arg(key(name.as_str()))).await?;
    servers.send(NAMES, redis::cmd("SREM").arg(NAMES).arg(name.as_str())).await.map(drop)
}

/// Returns the instances that live, in the order of their names, and removes the names of the others.
///
/// # Errors
/// [`Error::Buffer`](crate::Error::Buffer). What cannot be read is left out.
pub(super) async fn list(servers: &Servers) -> Result<Vec<Instance>> {
    let found = servers.send(NAMES, redis::cmd("SMEMBERS").arg(NAMES)).await?;
    let mut names: Vec<&str> = match &found {
        Value::Array(names) | Value::Set(names) => names.iter().filter_map(readable_name).collect(),
        _ => Vec::new(),
    };
    names.sort_unstable();
    names.truncate(NAMES_MAX);
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<String> = names.iter().map(|name| key(name)).collect();
    let mut pipeline = redis::pipe();
    // Unlike GET, it takes a key of another type for none.
    pipeline.cmd("MGET").arg(&keys);
    for key in &keys {
        pipeline.cmd("PTTL").arg(key);
    }
    let answers = servers.read(NAMES, &pipeline).await?;
    let Some((values, times)) = answers.split_first() else { return Ok(Vec::new()) };
    let (mut instances, mut gone) = (Vec::new(), Vec::new());
    for ((name, value), left) in names.iter().zip(answer::values(values)?).zip(times) {
        if *value == Value::Nil {
            gone.push(*name);
            continue;
        }
        match read(name, value, left) {
            Some(instance) => instances.push(instance),
            None => tracing::debug!(name, "the report of an instance cannot be read, and is left out"),
        }
    }
    if !gone.is_empty()
        && let Err(error) = servers.send(NAMES, redis::cmd("SREM").arg(NAMES).arg(&gone)).await
    {
        tracing::debug!(%error, "names of instances that are gone could not be removed");
    }
    Ok(instances)
}

fn readable_name(value: &Value) -> Option<&str> {
    let name = text(value).filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
    if name.is_none() {
        tracing::debug!(?value, "a name of an instance cannot be read, and is left out");
    }
    name
}

fn written(report: &InstanceReport, lifetime: &str) -> String {
    let InstanceReport { version, addresses, uptime, views, saved, .. } = report;
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    format!("{lifetime}|{}|{views}|{saved}|{}|{version}", uptime.as_millis(), addresses.join(","))
}

/// Reads a report; `left` is what is left of its lifetime. `None` for what no instance has written, and for one that has expired by now.
fn read(name: &str, value: &Value, left: &Value) -> Option<Instance> {
    let mut parts = text(value)?.splitn(6, '|');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let [lifetime, uptime, views, saved] = [number()?, number()?, number()?, number()?];
    let addresses = parts.next()?;
    let addresses = addresses.split(',').filter(|address| !address.is_empty()).map(|address| address.parse().ok());
    let report = InstanceReport {
        name: Owner(name.into()),
        version: parts.next()?.to_owned(),
        addresses: addresses.collect::<Option<Vec<SocketAddr>>>()?,
        uptime: Duration::from_millis(uptime),
        views,
        saved,
    };
    let left = answer::number(left)?;
    Some(Instance { report, seen: Duration::from_millis(lifetime.saturating_sub(left)) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::Value;

    use super::{read, written};
    use crate::buffer::{InstanceReport, Owner};

    fn read_text(value: &str, left: i64) -> Option<crate::Instance> {
        read("a1", &Value::BulkString(value.into()), &Value::Int(left))
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = InstanceReport {
            name: Owner("a1".into()),
            version: "0.1.0|odd".to_owned(),
            addresses: vec!["127.0.0.1:80".parse().expect("an address"), "[::1]:8080".parse().expect("an address")],
            uptime: Duration::from_millis(1_234),
            views: 5,
            saved: u64::MAX,
        };
        let none = InstanceReport { addresses: Vec::new(), ..report.clone() };
        for report in [report, none] {
            let text = written(&report, "10000");
            let instance = read_text(&text, 7_500).expect("a report");
            assert_eq!((instance.report, instance.seen), (report, Duration::from_millis(2_500)), "{text}");
        }
    }

    #[test]
    fn what_no_instance_has_written_is_left_out() {
        let right = "10000|1|2|3|127.0.0.1:80|0.1.0";
        assert!(read_text(right, 1).is_some());
        for wrong in [
            "",
            "10000",
            "10000|1|2|3",
            "10000|1|2|3|127.0.0.1:80",
            "x|1|2|3||v",
            "10000|1|-2|3||v",
            "10000|1|2|3|here|v",
        ] {
            assert_eq!(read_text(wrong, 1), None, "{wrong}");
        }
        assert_eq!(read_text(right, -1), None, "a key that does not expire");
        assert_eq!(read_text(right, -2), None, "it has expired in between");
    }
}

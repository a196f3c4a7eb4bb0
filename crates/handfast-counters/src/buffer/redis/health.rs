//! The settings of a Redis server, and what they cost: a queue is as durable as the server that holds it.

/// The oldest version whose scripts and commands are used, as major and minor number.
const VERSION_MIN: (u32, u32) = (6, 2);

/// The state of a Redis server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisHealth {
    /// The version of the server, such as `7.0.15`.
    pub version: String,
    /// Warnings about the settings of the server, one sentence each; empty if no acknowledged view can be lost.
    pub warnings: Vec<String>,
}

/// The answers of `INFO server`, `INFO replication` and `CONFIG GET`.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// A random name for each start of the server.
    run_id: Option<String>,
    /// A random name for each time that the server was made a master.
    replication_id: Option<String>,
    version: Option<String>,
    /// The number of replicas that are connected.
    replicas: usize,
    /// The settings by name; `None` if the server does not show them.
    settings: Option<Vec<(String, String)>>,
}

impl Settings {
    /// Reads the answers. `settings` are pairs of a name and a value.
    pub(super) fn new(info: &str, settings: Option<Vec<(String, String)>>) -> Self {
        let field = |name: &str| {
            let mut values = info.lines().filter_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
            values.next().map(str::to_owned)
        };
        Settings {
            run_id: field("run_id"),
            replication_id: field("master_replid"),
            version: field("redis_version"),
            replicas: field("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0),
            settings,
        }
    }

    /// Returns the name of this run of the server as a master. A server that was a replica meanwhile has the data of another one, which may be older
    /// than what its clients saw: it has another name then, although it was not started again.
    pub(super) fn run(&self) -> Option<String> {
        let run_id = self.run_id.as_ref()?;
        Some(match &self.replication_id {
            Some(replication_id) => format!("{run_id}/{replication_id}"),
            None => run_id.clone(),
        })
    }

    fn setting(&self, name: &str) -> Option<&str> {
        let (_, value) = self.settings.as_ref()?.iter().find(|(found, _)| found == name)?;
        Some(value)
    }

    /// Returns what follows from the settings.
    pub(super) fn health(&self) -> RedisHealth {
        let version = self.version.clone().unwrap_or_default();
        let mut warnings = Vec::new();
        if !is_supported(&version) {
            let (major, minor) = VERSION_MIN;
            warnings.push(format!(
                "Redis {version:?} is older than {major}.{minor}, the oldest version that is tested: upgrade it"
            ));
        }
        if self.settings.is_none() {
            warnings.push(
                "Redis does not show its settings (CONFIG GET is refused): see to it that it has appendonly yes, appendfsync always, \
                 and maxmemory-policy noeviction"
                    .to_owned(),
            );
        }
        warnings.extend(self.durability());
        warnings.extend(self.eviction());
        warnings.extend(self.replication());
        RedisHealth { version, warnings }
    }

    fn durability(&self) -> Option<String> {
        if self.setting("appendonly")? != "yes" {
            return Some(
                "Redis writes no append-only file (appendonly no): when it stops, all views since its last snapshot are lost that were not \
                 saved yet; set appendonly yes and appendfsync always"
                    .to_owned(),
            );
        }
        match self.setting("appendfsync")? {
            "always" => None,
            "everysec" => Some(
                "Redis syncs its append-only file once a second (appendfsync everysec): when its machine fails, the views of the last two \
                 seconds are lost that were not saved yet, and their idempotency keys; set appendfsync always"
                    .to_owned(),
            ),
            other => Some(format!(
                "Redis leaves it to the operating system when its append-only file is synced (appendfsync {other}): when its machine fails, \
                 the views of the last half minute are lost that were not saved yet, and their idempotency keys; set appendfsync always"
            )),
        }
    }

    fn replication(&self) -> Option<String> {
        if self.replicas == 0 {
            return None;
        }
        let switched_off = match (self.setting("min-replicas-to-write")?, self.setting("min-replicas-max-lag")) {
            ("0", _) => "min-replicas-to-write 0",
            (_, Some("0")) => "min-replicas-max-lag 0",
            _ => return None,
        };
        Some(format!(
            "Redis goes on to count views when it is cut off from its replicas ({switched_off}): they are lost when a replica takes its \
             place; set min-replicas-to-write 1 and min-replicas-max-lag 10"
        ))
    }

    fn eviction(&self) -> Option<String> {
        let policy = self.setting("maxmemory-policy")?;
        if policy.starts_with("allkeys-") {
            return Some(format!(
                "Redis evicts any key when its memory is full (maxmemory-policy {policy}), also queues with views that are not saved: set \
                 maxmemory-policy noeviction"
            ));
        }
        let limited = self.setting("maxmemory").is_some_and(|bytes| bytes != "0");
        (limited && policy.starts_with("volatile-")).then(|| {
            format!(
                "Redis evicts keys that expire when its memory is full (maxmemory-policy {policy}), also idempotency keys, after which a \
                 repeated request is counted again: set maxmemory-policy noeviction"
            )
        })
    }
}

/// A version that cannot be read is taken for a new one.
fn is_supported(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= VERSION_MIN,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn warnings(version: &str, settings: &[(&str, &str)]) -> Vec<String> {
        let info = format!(
            "# Server\r\nredis_version:{version}\r\nrun_id:0a1b\r\n# Replication\r\nconnected_slaves:1\r\nmaster_replid:2c\r\n"
        );
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = Settings::new(&info, Some(settings));
        assert_eq!(settings.run().as_deref(), Some("0a1b/2c"));
        settings.health().warnings
    }

    const SAFE: [(&str, &str); 6] = [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("min-replicas-to-write", "1"),
        ("min-replicas-max-lag", "10"),
    ];

    fn with(name: &str, value: &'static str) -> Vec<String> {
        let mut settings = SAFE;
        settings.iter_mut().filter(|(found, _)| *found == name).for_each(|(_, of_name)| *of_name = value);
        warnings("7.0.15", &settings)
    }

    #[test]
    fn a_safe_server_has_no_warnings() {
        assert_eq!(warnings("7.0.15", &SAFE), [""; 0]);
        assert_eq!(warnings("6.2.0", &SAFE), [""; 0]);
        assert_eq!(warnings("unstable", &SAFE), [""; 0]);
    }

    #[test]
    fn each_risk_has_its_sentence() {
        let table = [
            (warnings("6.0.16", &SAFE), "\"6.0.16\" is older than 6.2"),
            (with("appendonly", "no"), "(appendonly no)"),
            (with("appendfsync", "everysec"), "last two seconds"),
            (with("appendfsync", "no"), "last half minute"),
            (with("maxmemory-policy", "allkeys-lru"), "also queues"),
            (with("min-replicas-to-write", "0"), "cut off from its replicas (min-replicas-to-write 0)"),
            (with("min-replicas-max-lag", "0"), "cut off from its replicas (min-replicas-max-lag 0)"),
            (Settings::new("redis_version:7.0.15", None).health().warnings, "CONFIG GET is refused"),
        ];
        for (warnings, part) in table {
            assert!(warnings.len() == 1 && warnings[0].contains(part), "{warnings:?}, {part}");
        }
        assert_eq!(with("maxmemory-policy", "volatile-ttl"), [""; 0], "without a limit of memory nothing is evicted");
        let alone = SAFE.map(|(name, value)| (name.to_owned(), if value == "1" { "0" } else { value }.to_owned()));
        let alone = Settings::new("redis_version:7.0.15\r\nconnected_slaves:0", Some(alone.to_vec()));
        assert_eq!(alone.health().warnings, [""; 0], "there is no replica");
    }
}

//! Redis Sentinel: which server is the master of a name.
//!
//! All sentinels are asked at once. The server that more than half of them name is tried at once; otherwise those that were named are tried when each sentinel has
//! answered or its time is over, the one that most have named first. So a sentinel that is cut off from the others, and names a master that they have
//! replaced, is outvoted. What a sentinel names is the master only if it says so itself (`ROLE`).

use std::time::Duration;

use tokio::task::JoinSet;

use super::connection::Unreachable;
use super::connector::Connector;
use super::url::Address;

/// Sentinels, and the name of a master.
pub(super) struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    connector: Connector,
    /// The time in which a sentinel has to answer.
    timeout: Duration,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, master: String, connector: Connector, timeout: Duration) -> Self {
        Sentinels { addresses, master, connector, timeout }
    }

    /// Returns the servers that the sentinels name as the master, the most likely one first.
    ///
    /// # Errors
    /// Says why no sentinel names a server.
    pub(super) async fn masters(&self) -> Result<Vec<Address>, Unreachable> {
        let mut questions = JoinSet::new();
        for address in &self.addresses {
            let (address, master, connector) = (address.clone(), self.master.clone(), self.connector.clone());
            let timeout = self.timeout;
            questions.spawn(async move {
                let answer = tokio::time::timeout(timeout, ask(&connector, &address, &master)).await;
                answer.unwrap_or_else(|_| {
                    Err(Unreachable { why: format!("the sentinel {address} does not answer in time"), is_silent: true })
                })
            });
        }
        let mut votes = Votes::default();
        let (mut problems, mut is_silent) = (Vec::new(), false);
        while let Some(answer) = questions.join_next().await {
            match answer.unwrap_or_else(|error| Err(Unreachable { why: error.to_string(), is_silent: false })) {
                Ok(address) => {
                    votes.add(address);
                    if votes.most() * 2 > self.addresses.len() {
                        break;
                    }
                }
                Err(problem) => {
                    problems.push(problem.why);
                    is_silent |= problem.is_silent;
                }
            }
        }
        match votes.by_number() {
            addresses if addresses.is_empty() => Err(Unreachable { why: problems.join("; "), is_silent }),
            addresses => Ok(addresses),
        }
    }
}

/// The servers that sentinels have named.
#[derive(Default)]
struct Votes(Vec<(Address, usize)>);

impl Votes {
    fn add(&mut self, address: Address) {
        match self.0.iter_mut().find(|(found, _)| *found == address) {
            Some((_, votes)) => *votes += 1,
            None => self.0.push((address, 1)),
        }
    }

    fn most(&self) -> usize {
        self.0.iter().map(|(_, votes)| *votes).max().unwrap_or(0)
    }

    fn by_number(mut self) -> Vec<Address> {
        self.0.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        self.0.into_iter().map(|(address, _)| address).collect()
    }
}

/// Asks a sentinel for the master of a name.
async fn ask(connector: &Connector, sentinel: &Address, master: &str) -> Result<Address, Unreachable> {
    let problem = |error: redis::RedisError| {
        let advice = match error.code() {
            Some("NOAUTH" | "NOPERM") => ": give its login as ?sentinel_username=..&sentinel_password=.. in the URL",
            _ => "",
        };
        Unreachable { why: format!("the sentinel {sentinel}: {error}{advice}"), is_silent: error.is_timeout() }
    };
    let mut connection = connector.open(sentinel).await.map_err(problem)?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(master);
    match question.query_async(&mut connection).await.map_err(problem)? {
        Some((host, port)) => Ok(Address { host, port }),
        None => {
            let why = format!("the sentinel {sentinel} knows no master named {master}");
            Err(Unreachable { why, is_silent: false })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Votes;
    use crate::buffer::redis::url::Address;

    #[test]
    fn the_server_that_most_sentinels_name_is_tried_first() {
        let address = |port| Address { host: "h".to_owned(), port };
        let mut votes = Votes::default();
        for port in [1, 2, 3, 2] {
            votes.add(address(port));
        }
        assert_eq!(votes.most(), 2);
        assert_eq!(votes.by_number(), [2, 1, 3].map(address));
        assert_eq!(Votes::default().most(), 0);
    }
}

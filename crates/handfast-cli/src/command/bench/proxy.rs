//! `handfast bench proxy`: the proxy of the black pipe against a relay that copies bytes, both in front of the same echo.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use bson::{RawDocumentBuf, rawdoc};
use handfast_blackpipe::{Proxy, Rules};
use handfast_store::Clock;
use handfast_wire::{Flags, OpMsg};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::measure::interleaved;
use super::report::Comparison;
use super::serve::{Plan, echo, find_command, measured};

/// Any free port of this machine.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The share of the relay's operations that the proxy forwards, which has to read each message.
const PROMISED: f64 = 0.7;

/// Measures finds whose reply is this document.
pub(super) async fn run(
    plan: &Plan,
    clock: Arc<dyn Clock>,
    document: RawDocumentBuf,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Comparison>> {
    progress("find through the proxy");
    let body = rawdoc! { "cursor": { "firstBatch": [document], "id": 0_i64, "ns": "bench.documents" }, "ok": 1.0 };
    let mut reply = Vec::new();
    OpMsg::new(Flags::default(), &body).encode(0, 0, &mut reply);
    let note = format!("{} connections, replies of {} bytes", plan.connections, reply.len());
    let mut tasks = JoinSet::new();
    let echo_listener = TcpListener::bind(ANY).await?;
    let server = echo_listener.local_addr()?;
    tasks.spawn(echo(echo_listener, Arc::new(reply)));
    let relay_listener = TcpListener::bind(ANY).await?;
    let relay_address = relay_listener.local_addr()?;
    tasks.spawn(relay(relay_listener, server));
    let proxy = Proxy::bind(ANY, server.to_string(), Rules::default()).await?;
    let proxy_address = proxy.address();
    tasks.spawn(async move { match proxy.run().await {} });

    let baseline = async |_| measured(plan, &clock, relay_address, find_command).await;
    let subject = async |_| measured(plan, &clock, proxy_address, find_command).await;
    let rounds = interleaved(plan.rounds, baseline, subject).await?;
    let promised = plan.promises.ratio(PROMISED);
    Ok(vec![Comparison::new("find, blackpipe proxy", "bare TCP relay", &rounds, promised).with_note(note)])
}

/// Copies the bytes of each connection to the server and back, whatever they are.
async fn relay(listener: TcpListener, server: SocketAddr) {
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut server = TcpStream::connect(server).await?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await
        });
    }
}

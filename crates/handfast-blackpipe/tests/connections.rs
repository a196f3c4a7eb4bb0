//! A proxy holds as many connections as the system lets the test open, within memory for each. The test is alone in its process, whose memory
//! it measures.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use bson::rawdoc;
use handfast_blackpipe::proxy::{CONNECTIONS_MAX, IDLE_CONNECTION_BYTES_MAX};
use handfast_blackpipe::{Proxy, Rules};
use handfast_wire::{Flags, OpMsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Files that the process has open beside those of the connections.
const OTHER_FILES: usize = 100;
/// Each connection has a socket of the client, two of the proxy, and one of the server.
const FILES_PER_CONNECTION: usize = 4;

fn ping() -> Vec<u8> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "ping": 1, "$db": "test" }).encode(1, 0, &mut bytes);
    bytes
}

/// Returns the message as the reply of the server, which is as long as the request.
fn reply() -> Vec<u8> {
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), &rawdoc! { "pong": 1, "$db": "test" }).encode(1, 1, &mut bytes);
    bytes
}

/// Answers each request with the reply.
async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = vec![0; ping().len()];
            while stream.read_exact(&mut request).await.is_ok() && stream.write_all(&reply()).await.is_ok() {}
        });
    }
}

async fn exchange(stream: &mut TcpStream) -> Result<(), Box<dyn Error>> {
    stream.write_all(&ping()).await?;
    let mut answer = vec![0; reply().len()];
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, reply());
    Ok(())
}

/// Returns the number after a name in a file of /proc/self.
fn of_process(file: &str, name: &str) -> Result<usize, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/self/{file}"))?;
    let after = text.lines().find_map(|line| line.strip_prefix(name));
    let number = after.and_then(|rest| rest.split_whitespace().next()).ok_or(format!("{file} has no {name}"))?;
    // The number of open files may be unlimited.
    Ok(number.parse().unwrap_or(usize::MAX))
}

fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    Ok(of_process("status", "VmRSS:")? * 1024)
}

#[tokio::test]
async fn many_connections_are_held_within_memory_for_each() -> Result<(), Box<dyn Error>> {
    let open_files_max = of_process("limits", "Max open files")?;
    let count = CONNECTIONS_MAX.min(open_files_max.saturating_sub(OTHER_FILES) / FILES_PER_CONNECTION);
    let listener = TcpListener::bind(ANY).await?;
    let server = listener.local_addr()?.to_string();
    tokio::spawn(serve(listener));
    let proxy = Proxy::bind(ANY, server, Rules::default()).await?;
    let (address, handle) = (proxy.address(), proxy.handle());
    tokio::spawn(proxy.run());

    let mut streams = Vec::with_capacity(count);
    streams.push(TcpStream::connect(address).await?);
    // What is needed once is there after the first exchange.
    for stream in &mut streams {
        exchange(stream).await?;
    }
    let before = resident_bytes()?;
    while streams.len() < count {
        let mut stream = TcpStream::connect(address).await?;
        exchange(&mut stream).await?;
        streams.push(stream);
    }
    let (grown, bound) = (resident_bytes()?.saturating_sub(before), count * IDLE_CONNECTION_BYTES_MAX);
    println!("{count} connections have {grown} bytes, {} each", grown / count);
    assert!(grown <= bound, "{count} connections have {grown} bytes, and {bound} at most");

    // All of them work, whichever was first.
    for stream in &mut streams {
        exchange(stream).await?;
    }
    assert_eq!(handle.operation_count(), 2 * count as u64);
    Ok(())
}

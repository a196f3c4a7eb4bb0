//! Tells a service manager, such as systemd, what the state of a server is: `sd_notify(3)`.
//!
//! The manager names a datagram socket in the variable `NOTIFY_SOCKET`; a service sends it lines such as `READY=1`. So `systemctl start`
//! returns when the server accepts commands.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

const VARIABLE: &str = "NOTIFY_SOCKET";

/// A state of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServiceState {
    /// It accepts requests.
    Ready,
    /// It has begun to stop.
    Stopping,
}

impl ServiceState {
    fn line(self) -> &'static str {
        match self {
            ServiceState::Ready => "READY=1",
            ServiceState::Stopping => "STOPPING=1",
        }
    }
}

/// Reports a state to the service manager, if there is one. A failure is logged, as the service works without it.
pub(crate) fn notify(state: ServiceState) {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    if let Err(error) = send(name.as_encoded_bytes(), state.line()) {
        warn!("the service manager cannot be told {} ({VARIABLE}): {error}", state.line());
    }
}

/// Sends a line to a socket.
fn send(name: &[u8], line: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(line.as_bytes(), &address(name)?)?;
    Ok(())
}

/// Returns the address of a path, or, after `@`, one of the abstract name space, which only Linux has.
fn address(name: &[u8]) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::from_bytes(name))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::{ServiceState, send};

    #[test]
    fn a_socket_of_the_abstract_name_space_gets_the_line() {
        let name = format!("handfast-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(format!("@{name}").as_bytes(), ServiceState::Ready.line()).unwrap();
        let mut line = [0; 64];
        let length = socket.recv(&mut line).unwrap();
        assert_eq!(&line[..length], b"READY=1");
    }
}

use std::net::Ipv4Addr;

use super::*;

fn any_port() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

async fn error(listen: &[Address]) -> Error {
    Listeners::bind(listen).await.err().unwrap()
}

#[tokio::test]
async fn all_addresses_are_bound_or_none() {
    let first = Listeners::bind(&[any_port()]).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.sock");
    let busy = error(&[Address::Unix(path.clone()), first.addresses()[0].clone()]).await;
    assert!(busy.to_string().starts_with("cannot listen on 127.0.0.1:"), "{busy}");
    assert!(!path.exists(), "what was taken is given back");
    assert!(matches!(error(&[]).await, Error::NoAddress));
}

#[tokio::test]
async fn only_an_abandoned_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.sock");
    let listen = [Address::Unix(path.clone())];
    let first = Listeners::bind(&listen).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
    assert!(matches!(error(&listen).await, Error::SocketPath { why: "another server listens there", .. }));
    drop(first);
    assert!(!path.exists());

    // A killed server leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Listeners::bind(&listen).await.unwrap());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(error(&listen).await, Error::SocketPath { .. }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

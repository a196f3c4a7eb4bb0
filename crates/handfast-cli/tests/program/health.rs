//! What others ask a server: `handfast ping`, and the service manager that has started it.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, handfast, output};

/// Returns the arguments of a ping of the server.
fn ping(address: &str) -> [String; 3] {
    ["ping".to_owned(), "--uri".to_owned(), format!("mongodb://{address}")]
}

#[test]
fn a_ping_is_answered_by_a_server_that_requires_a_login_and_announces_another_address() -> Result<()> {
    let scratch = Scratch::new("ping")?;
    let flags = ["--auth", "--advertise", "db.invalid:27017"];
    let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(flags))?;
    let answered = output(handfast(&scratch, &[]).args(ping(&serve.address()?)).args(["--timeout", "1m"]))?;
    ensure!(answered.status.success(), "{answered:?}");
    assert_eq!(String::from_utf8(answered.stdout)?, format!("mongodb://{} answers\n", serve.address()?));
    let json = output(
        handfast(&scratch, &["ping", "--json", "--timeout", "1m"])
            .env("HANDFAST_URI", format!("mongodb://{}", serve.address()?)),
    )?;
    assert_eq!(String::from_utf8(json.stdout)?, "{\"answers\":true}\n");
    Ok(())
}

#[test]
fn a_ping_without_an_answer_fails() -> Result<()> {
    let scratch = Scratch::new("no-ping")?;
    // It takes connections, and nobody answers, as while a server opens its data.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = silent.local_addr()?.to_string();
    let unanswered = output(handfast(&scratch, &[]).args(ping(&address)).args(["--timeout", "200ms"]))?;
    assert_one_line(&unanswered, 1, &format!("mongodb://{address} gave no answer within 200ms"));
    let wrong = output(&mut handfast(&scratch, &["ping", "--uri", "localhost"]))?;
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    Ok(())
}

#[test]
fn a_ping_waits_for_a_server_that_starts() -> Result<()> {
    let scratch = Scratch::new("ping-waits")?;
    let (front, server) = (TcpListener::bind("127.0.0.1:0")?, Arc::new(OnceLock::new()));
    let address = front.local_addr()?.to_string();
    let (refused, first_refused) = channel();
    std::thread::spawn({
        let server = Arc::clone(&server);
        move || forward(&front, &server, &refused)
    });
    let mut waiting = handfast(&scratch, &[]).args(ping(&address)).args(["--timeout", "1m", "--quiet"]).spawn()?;
    first_refused.recv()?;
    let serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    server.set(serve.address()?).map_err(|_| anyhow!("it is set once"))?;
    ensure!(waiting.wait()?.success(), "no answer");
    Ok(())
}

/// Forwards connections to a server. As long as there is none, it closes them, and says so.
fn forward(front: &TcpListener, server: &OnceLock<String>, refused: &Sender<()>) {
    for client in front.incoming().map_while(std::result::Result::ok) {
        let Some(server) = server.get() else {
            let _ = refused.send(());
            continue;
        };
        let Ok(server) = TcpStream::connect(server) else { continue };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { continue };
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    }
}

#[test]
fn the_service_manager_learns_when_a_server_is_ready_and_when_it_stops() -> Result<()> {
    let counters: &[&str] = &["counters", "serve", "--listen", "127.0.0.1:0"];
    for (name, arguments) in [("serve", &FREE_PORT[..]), ("counters", counters)] {
        let scratch = Scratch::new(&format!("notify-{name}"))?;
        let manager = UnixDatagram::bind(scratch.path("notify"))?;
        manager.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut line = [0; 64];
        let serve = Serve::start(handfast(&scratch, arguments).env("NOTIFY_SOCKET", scratch.path("notify")))?;
        let length = manager.recv(&mut line)?;
        assert_eq!(line.get(..length), Some(&b"READY=1"[..]));
        serve.signal("TERM")?;
        let length = manager.recv(&mut line)?;
        assert_eq!(line.get(..length), Some(&b"STOPPING=1"[..]));
        assert_eq!(serve.wait()?.0, Some(0));
    }
    Ok(())
}

#[test]
fn without_a_service_manager_that_listens_a_server_starts() -> Result<()> {
    let scratch = Scratch::new("notify-nobody")?;
    let mut serve = Serve::start(handfast(&scratch, &FREE_PORT).env("NOTIFY_SOCKET", scratch.path("nobody")))?;
    serve.stop("TERM")?;
    let (code, log) = serve.wait()?;
    ensure!(code == Some(0) && log.contains("the service manager cannot be told READY=1"), "{code:?} {log}");
    Ok(())
}

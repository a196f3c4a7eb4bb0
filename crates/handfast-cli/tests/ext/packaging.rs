//! What is beside the program: the unit for systemd, the image, alerts and dashboard, the book and its guides.

use crate::support::{Tool, run_with_own_servers, skipped_unless_ci};

const HANDFAST: &str = env!("CARGO_BIN_EXE_handfast");

/// The unit for systemd: systemd reads it, finds little that it could do, and its filter of system calls leaves those that the server makes.
#[test]
fn ext_packaging_systemd() {
    let (Some(python), Some(_), Some(strace)) = (Tool::Python.find(), Tool::SystemdAnalyze.find(), Tool::Strace.find())
    else {
        return;
    };
    run_with_own_servers(&python, &["tests/packaging/systemd.py", "--handfast", HANDFAST, "--strace", &strace]);
}

/// The image: built from the Dockerfile without a registry; its program runs as no root, and its health check sees a server that answers and one that does not.
#[test]
fn ext_packaging_image() {
    let (Some(python), Some(_)) = (Tool::Python.find(), Tool::Buildah.find()) else { return };
    run_with_own_servers(&python, &["tests/packaging/image.py", "--handfast", HANDFAST]);
}

/// The services of compose.yaml, as processes of this machine: counted views are in the store, behind transactions.
#[test]
fn ext_packaging_compose() {
    let Some(python) = Tool::Python.find() else { return };
    run_with_own_servers(&python, &["tests/packaging/compose.py", "--handfast", HANDFAST]);
}

/// Alerts fire when they should, and a real Prometheus that scrapes a server under load has data for the expressions of dashboard and alerts.
#[test]
fn ext_packaging_prometheus() {
    let (Some(python), Some(_)) = (Tool::Python.find(), Tool::Prometheus.find()) else { return };
    run_with_own_servers(&python, &["tests/packaging/prometheus.py", "--handfast", HANDFAST]);
}

/// The book: it is built, and no link of its pages is dead.
#[test]
fn ext_book() {
    let (Some(python), Some(mdbook)) = (Tool::Python.find(), Tool::MdBook.find()) else { return };
    run_with_own_servers(&python, &["tests/packaging/book.py", "--mdbook", &mdbook]);
}

/// The task guides: their commands and programs, as pasted, print what the pages say.
#[test]
fn ext_task_guides() {
    let (Some(python), Some(_)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    // A page uses the ports that it names, so it needs a network of its own.
    if !std::process::Command::new("unshare").args(["-rn", "true"]).status().is_ok_and(|status| status.success()) {
        skipped_unless_ci("unshare -rn makes no network of its own here, which the guides need for their ports");
        return;
    }
    run_with_own_servers(&python, &["tests/guides/run.py", "--handfast", HANDFAST]);
}

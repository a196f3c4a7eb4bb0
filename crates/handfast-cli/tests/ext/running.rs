//! Programs that are run to their end, which must come.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{Tool, root, wait_until};

/// The time that one program may run; the longest takes about two minutes on two cores.
const PROGRAM_SECONDS_MAX: u64 = 900;
/// The time in which all that an ended program has said is there. Another process that has its output may go on.
const REST_MAX: Duration = Duration::from_secs(10);

/// Returns the arguments of `java` before the name of a program of tests/clients/java, if those are installed.
pub(crate) fn java_arguments() -> Option<Vec<String>> {
    let folder = Tool::JavaClients.find()?;
    // Short programs are not worth the second compiler.
    let arguments = ["-XX:TieredStopAtLevel=1", "-cp", &format!("{folder}:{folder}/*")];
    Some(arguments.map(str::to_owned).to_vec())
}

/// Runs a program from the repository's root, which must exit with 0; its output is shown where it does not.
pub(crate) fn execute(command: &mut Command) {
    let output = output(command.current_dir(root()));
    println!("{}", text(&output));
    assert!(output.status.success(), "{command:?} ended with {}", output.status);
}

/// Runs a program to its end, as [`Command::output`] does. One that does not end is killed, with the processes of its group, and fails the test with
/// what it has said.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let stdout = read_to_end(child.stdout.take().expect("its output"));
    let stderr = read_to_end(child.stderr.take().expect("its errors"));
    let has_ended = wait_until(PROGRAM_SECONDS_MAX, || child.try_wait().expect("a child to wait for").is_some());
    if !has_ended {
        let group = format!("-{}", child.id());
        let _gone = Command::new("kill").args(["-KILL", "--", &group]).status();
    }
    let status = child.wait().expect("its exit code");
    let rest = |bytes: Receiver<Vec<u8>>| bytes.recv_timeout(REST_MAX).ok();
    let (stdout, stderr) = (rest(stdout), rest(stderr));
    let is_whole = stdout.is_some() && stderr.is_some();
    let output = Output { status, stdout: stdout.unwrap_or_default(), stderr: stderr.unwrap_or_default() };
    assert!(has_ended, "{command:?} had not ended after {PROGRAM_SECONDS_MAX} s, and was killed:\n{}", text(&output));
    assert!(is_whole, "{command:?} has left a process that holds its output:\n{}", text(&output));
    output
}

/// Reads all that a program says, which would stop once nobody did.
fn read_to_end(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _until_the_end = from.read_to_end(&mut bytes);
        sender.send(bytes)
    });
    receiver
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

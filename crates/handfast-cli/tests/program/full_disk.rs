//! Disks that are full, or become full: a small file system of the test's own; where none can be mounted, a bound on the length of
//! files.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use handfast_store::{Random, SeededRandom};

use crate::counters::request;
use crate::support::{Scratch, Serve, assert_one_line, connect, mounts_or_says_why_not, output};

const OUT_OF_DISK_SPACE: i32 = 14_031;
const MIB: usize = 1024 * 1024;
/// A number of views that exceeds the space left in the files of a full disk.
const VIEWS_MAX: u64 = 100_000;

/// The place of the directory `data` of a test.
enum Disk {
    /// A small file system, mounted in a namespace that this process holds.
    Small(Child),
    /// The file system of the tests, with this limit on the length of the program's files, in bytes.
    ShortFiles(usize),
}

impl Disk {
    /// Mounts a disk of `bytes` bytes; where mounting is not allowed, it limits the program's files to `file_bytes_max` bytes each.
    fn new(scratch: &Scratch, bytes: usize, file_bytes_max: usize) -> Result<Self> {
        let data = scratch.path("data");
        std::fs::create_dir(&data)?;
        let mount = format!("mount -t tmpfs -o size={bytes},mode=700 none \"$0\"");
        if !mounts_or_says_why_not(&mount, &data)? {
            return Ok(Disk::ShortFiles(file_bytes_max));
        }
        let hold = format!("{mount} && echo mounted && exec cat");
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &hold]).arg(&data).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn()?;
        let mut said = String::new();
        BufReader::new(holder.stdout.take().context("stdout")?).read_line(&mut said)?;
        let disk = Disk::Small(holder);
        ensure!(said == "mounted\n", "{said}");
        Ok(disk)
    }

    /// Returns a command that sees the disk; the last of its arguments is the data directory.
    fn command(&self, scratch: &Scratch, program: &str, arguments: &[&str]) -> Command {
        let mut command = match self {
            Disk::Small(holder) => {
                let mut command = Command::new("nsenter");
                command.args(["--user", "--mount", "--preserve-credentials", "--target", &holder.id().to_string()]);
                command.arg(program);
                command
            }
            Disk::ShortFiles(bytes_max) => {
                // The system would kill a program that exceeds the limit, unless it ignores the signal.
                let script = "trap '' XFSZ; exec prlimit --fsize=\"$0\" \"$@\"";
                let mut command = Command::new("sh");
                command.args(["-c", script, &bytes_max.to_string(), program]);
                command
            }
        };
        // The current directory is outside of the namespace's mount, so the command takes an absolute path.
        command.args(arguments).arg(scratch.path("data")).stdin(Stdio::null());
        command
    }

    fn serve(&self, scratch: &Scratch, arguments: &[&str]) -> Command {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--log-level", "off"];
        self.command(scratch, env!("CARGO_BIN_EXE_handfast"), &[&serve, arguments, &["--data"]].concat())
    }

    /// Enlarges the disk. Returns how the program is run from now on.
    fn make_room(self, scratch: &Scratch) -> Result<Self> {
        match self {
            Disk::Small(_) => {
                let status = self.command(scratch, "mount", &["-o", "remount,size=1g"]).status()?;
                ensure!(status.success(), "mount: {status}");
                Ok(self)
            }
            Disk::ShortFiles(_) => Ok(Disk::ShortFiles(1024 * MIB)),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Disk::Small(holder) = self {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

fn insert(serve: &Serve, id: i32, bytes: usize) -> Result<Document> {
    serve.command(doc! { "insert": "c", "documents": [{ "_id": id, "fill": noise(bytes) }], "$db": "db" })
}

fn count(serve: &Serve) -> Result<i32> {
    Ok(serve.command(doc! { "count": "c", "$db": "db" })?.get_i32("n")?)
}

/// Returns incompressible bytes, which are the same each time.
fn noise(bytes: usize) -> bson::Binary {
    let random = SeededRandom::new(1);
    let bytes = std::iter::repeat_with(|| random.next_u64().to_le_bytes()).flatten().take(bytes).collect();
    bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes }
}

/// Inserts documents until one is refused; returns the number of acknowledged documents, and the refusal.
fn fill(serve: &Serve, bytes: usize) -> Result<(i32, Document)> {
    for id in 0..1000 {
        let reply = insert(serve, id, bytes)?;
        if reply.get_i32("n").ok() != Some(1) {
            return Ok((id, reply));
        }
    }
    anyhow::bail!("the disk is never full")
}

#[test]
fn a_disk_that_is_full_at_the_start_is_one_line() -> Result<()> {
    let scratch = Scratch::new("full")?;
    let disk = Disk::new(&scratch, 16 * 1024, 256)?;
    assert_one_line(&output(&mut disk.serve(&scratch, &[]))?, 1, "no space left on the disk");
    Ok(())
}

/// Starts a server of view counters with the directory `data` on a disk.
fn counters(disk: &Disk, scratch: &Scratch) -> Result<Serve> {
    let serve =
        ["counters", "serve", "--listen", "127.0.0.1:0", "--flush-interval", "1h", "--log-level", "off", "--data"];
    Serve::start(&mut disk.command(scratch, env!("CARGO_BIN_EXE_handfast"), &serve))
}

#[test]
fn counters_on_a_full_disk_refuse_views_and_say_that_they_are_not_ready() -> Result<()> {
    let scratch = Scratch::new("full-counters")?;
    let disk = Disk::new(&scratch, 40 * MIB, 0)?;
    if let Disk::ShortFiles(_) = disk {
        writeln!(std::io::stderr(), "skipped: no file system can be mounted for counters on a full disk")?;
        return Ok(());
    }
    let serve = counters(&disk, &scratch)?;
    let mut stream = connect(&serve.address()?)?;
    let mut ask = |line: &str| request(&mut stream, line, "").with_context(|| format!("no answer to {line}"));
    let (status, counted) = ask("POST /v1/ads/7/views")?;
    ensure!(status == 200, "{counted}");
    assert_eq!(ask("GET /readyz")?.0, 200);
    let fill = "cat /dev/zero > \"$0/fill\"";
    disk.command(&scratch, "sh", &["-c", fill]).stderr(Stdio::null()).status()?;
    // The page of the journal that is in use still has space.
    let (mut acknowledged, mut refused) = (1, None);
    while refused.is_none() {
        match ask("POST /v1/ads/7/views")? {
            (200, _) => acknowledged += 1,
            other => refused = Some(other),
        }
        ensure!(acknowledged < VIEWS_MAX, "the disk is never full");
    }
    let (status, problem) = refused.context("a refusal")?;
    ensure!(status == 503 && problem.contains("\"outcome\""), "{problem}");
    // A probe that only read would not notice the full disk.
    let (status, problem) = ask("GET /readyz")?;
    let parts = r#""parts":[{"part":"queue","detail":"the cache and the queue are unavailable"}]"#;
    ensure!(status == 503 && problem.contains(parts), "{problem}");
    let total = format!(r#""total":{acknowledged},"#);
    let (status, read) = ask("GET /v1/ads/7")?;
    ensure!(status == 200 && read.contains(&total), "{read}");
    serve.signal("KILL")?;
    serve.wait()?;
    let status = disk.command(&scratch, "sh", &["-c", "rm \"$0/fill\""]).status()?;
    ensure!(status.success(), "rm: {status}");
    let serve = counters(&disk, &scratch)?;
    let mut stream = connect(&serve.address()?)?;
    let (_, counted) = request(&mut stream, "POST /v1/ads/7/views", "").context("no answer")?;
    let possible = [acknowledged + 1, acknowledged + 2].map(|total| format!(r#""total":{total},"#));
    ensure!(possible.iter().any(|total| counted.contains(total)), "{acknowledged} acknowledged; {counted}");
    serve.signal("TERM")?;
    assert_eq!(serve.wait()?.0, Some(0));
    Ok(())
}

/// Fills a disk, and asserts that nothing acknowledged is lost, and that the store accepts writes when there is space again.
fn fills_up(scratch: &Scratch, disk: Disk, arguments: &[&str], bytes: usize) -> Result<()> {
    let serve = Serve::start(&mut disk.serve(scratch, arguments))?;
    let (acknowledged, refused) = fill(&serve, bytes)?;
    assert!(acknowledged > 0);
    for reply in [refused, insert(&serve, 1000, 10)?, insert(&serve, 1001, 10)?] {
        assert_eq!(reply.get_i32("code").ok(), Some(OUT_OF_DISK_SPACE), "{reply}");
        assert!(reply.get_str("errmsg")?.contains("no space left on the disk"), "{reply}");
    }
    assert_eq!(count(&serve)?, acknowledged, "what is there can be read");
    serve.signal("TERM")?;
    let (code, stderr) = serve.wait()?;
    assert_eq!(code, Some(1), "what could not be synced is no good end: {stderr}");

    let disk = disk.make_room(scratch)?;
    let serve = Serve::start(&mut disk.serve(scratch, arguments))?;
    let found = count(&serve)?;
    let possible = acknowledged..=acknowledged + 1;
    assert!(possible.contains(&found), "{found} of {acknowledged}; the refused one may be there");
    assert_eq!(insert(&serve, 1000, 10)?.get_i32("n").ok(), Some(1));
    serve.signal("TERM")?;
    assert_eq!(serve.wait()?.0, Some(0));
    let program = env!("CARGO_BIN_EXE_handfast");
    let check = disk.command(scratch, program, &["check", "--quiet", "--data"]).output()?;
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    Ok(())
}

#[test]
fn a_disk_that_the_journal_fills_refuses_writes_and_keeps_what_was_acknowledged() -> Result<()> {
    let scratch = Scratch::new("fills-up")?;
    // A new journal has 64 MiB; a write beyond its end needs a longer file.
    let disk = Disk::new(&scratch, 40 * MIB, 64 * MIB + 64 * 1024)?;
    // The write buffer is so large that no data file is written meanwhile.
    fills_up(&scratch, disk, &["--write-buffer-bytes", "1GiB"], 10_000_000)
}

#[test]
fn a_disk_that_data_files_fill_refuses_writes_and_keeps_what_was_acknowledged() -> Result<()> {
    let scratch = Scratch::new("fills-up-with-data")?;
    let disk = Disk::new(&scratch, 40 * MIB, 64 * MIB + 64 * 1024)?;
    if let Disk::ShortFiles(_) = disk {
        // The reason has been printed. Data files and journals are split before they are as long as the bound.
        return Ok(());
    }
    fills_up(&scratch, disk, &["--write-buffer-bytes", "2MiB"], 1_000_000)
}

//! `handfast bench`: the figures that the documentation quotes, each against a baseline in the same run.

pub(super) mod arguments;
mod bare;
mod client;
mod counters;
mod measure;
mod patterns;
mod process;
mod proxy;
mod report;
mod serve;
mod store;
mod transactions;
mod transfers;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_server::{Address, Listeners, Server};
use handfast_store::decorator::{Fault, Faulty, Plan as FaultPlan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, Sources};
use handfast_txn::Database;
use indicatif::ProgressBar;

use self::arguments::{BenchArguments, BenchFlags, CountersFlags, ProcessFlags, SubjectFlags, TransferFlags};
use self::report::Promised;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::scratch::Scratch;
use crate::store::{Access, Directory, Location, OpenedStore, Servers};

/// Runs the benchmark that was asked for.
pub(crate) async fn run(arguments: &BenchArguments) -> Result<Exit> {
    match arguments {
        BenchArguments::Store(flags) => compare(flags, Subject::Store).await,
        BenchArguments::Serve(flags) => compare(flags, Subject::Server).await,
        BenchArguments::Transactions(flags) => compare(flags, Subject::Transactions).await,
        BenchArguments::Transfers(flags) => run_transfers(flags).await,
        BenchArguments::Patterns(flags) => run_patterns(flags).await,
        BenchArguments::Counters(flags) => run_counters(flags).await,
        BenchArguments::Process(flags) => run_process(flags).await,
        BenchArguments::Proxy(flags) => run_proxy(flags).await,
    }
}

/// The default number of clients of transfers over a distant store.
const TRANSFER_CLIENTS_MAX: u16 = 64;

/// The default number of clients of patterns.
const PATTERN_CLIENTS_MAX: u16 = 32;

/// The default number of connections to view counters, which their promises are for.
const COUNTERS_CLIENTS: u16 = 64;

/// The subject of a comparison with a baseline.
#[derive(Clone, Copy)]
enum Subject {
    Store,
    Server,
    Transactions,
}

impl Subject {
    /// Returns the default number of tasks or connections, which the promises are for.
    fn clients(self) -> u16 {
        match self {
            Subject::Store | Subject::Transactions => 64,
            Subject::Server => 16,
        }
    }
}

/// The promises of a run; none apply with another number of clients than the default.
#[derive(Clone, Copy)]
struct Promises {
    apply: bool,
    /// The ratio of --demand, instead of each case's own.
    demanded: Option<f64>,
}

impl Promises {
    fn ratio(self, ratio: f64) -> Option<f64> {
        self.apply.then_some(self.demanded.unwrap_or(ratio))
    }
}

/// The scratch directory, sources and progress bar of a measurement.
struct Workspace {
    console: Console,
    scratch: Scratch,
    sources: Sources,
    bar: ProgressBar,
}

impl Workspace {
    fn make(flags: &SubjectFlags) -> Result<Self> {
        let console = Console::new(flags.output);
        let scratch = Scratch::create(&flags.directory, "bench")?;
        let sources = Sources::system()?;
        Ok(Workspace { console, scratch, sources, bar: console.progress("bench", "steps", 0) })
    }
}

/// Shows the next step.
fn next(bar: &ProgressBar, step: &str) {
    bar.set_message(step.to_owned());
    bar.inc(1);
}

fn check_seconds(flags: &BenchFlags) -> Result<()> {
    ensure!(flags.seconds > 0.0, Usage("--seconds must be above 0".to_owned()));
    Ok(())
}

async fn compare(flags: &BenchFlags, subject: Subject) -> Result<Exit> {
    check_seconds(flags)?;
    let Workspace { console, scratch, sources, bar } = Workspace::make(&flags.subject)?;
    let progress = |step: &str| next(&bar, step);
    let options = Options { cache_bytes: flags.subject.cache_bytes.0, ..Options::default() };
    let embedded = Directory { path: scratch.path.join("store"), options }.open(sources.clone()).await?;
    let shared: Arc<dyn DocumentStore> = Arc::new(embedded.clone());
    let clients = flags.clients.unwrap_or(subject.clients());
    let promises = Promises { apply: clients == subject.clients(), demanded: flags.demand };
    let plan = store_plan(flags, usize::from(clients), promises);
    let comparisons = match subject {
        Subject::Store => {
            store::run(&plan, Arc::clone(&sources.clock), shared, &scratch.path.join("bare"), &progress).await?
        }
        Subject::Server => {
            let serving = Serving::start(&embedded, &sources).await?;
            let serve_plan = serve::Plan {
                connections: usize::from(clients),
                documents: flags.documents,
                seconds: flags.seconds,
                rounds: usize::from(flags.rounds),
                promises,
            };
            let document = |id| plan.document(id);
            let comparisons =
                serve::run(&serve_plan, Arc::clone(&sources.clock), serving.address, &document, &progress).await?;
            serving.stop().await?;
            comparisons
        }
        Subject::Transactions => {
            let serving = Serving::start(&embedded, &sources).await?;
            let bench = transactions::Bench {
                bare: Arc::new(bare::Bare::open(&scratch.path.join("bare"), plan.cache_bytes)?),
                plan,
                clock: Arc::clone(&sources.clock),
                embedded: embedded.clone(),
                database: serving.database.clone(),
                namespace: Namespace::new("bench", "accounts")?,
                server: serving.address,
                sqlite: scratch.path.join("sqlite"),
                progress: &progress,
            };
            let comparisons = bench.run().await?;
            drop(bench);
            serving.stop().await?;
            comparisons
        }
    };
    embedded.close().await?;
    bar.finish_and_clear();
    console.report(|| report::table(&comparisons), &comparisons)?;
    Ok(exit(&comparisons, flags.subject.strict))
}

/// Returns the exit code: a missed promise fails the command only with --strict, because machines differ.
fn exit(cases: &[impl Promised], strict: bool) -> Exit {
    let any_missed = cases.iter().any(|case| case.missed().is_some());
    if strict && any_missed { Exit::GuaranteeBroken } else { Exit::Good }
}

/// Returns a store in memory whose operations take a while.
fn distant(sources: &Sources, delay: Duration) -> Arc<dyn DocumentStore> {
    let store = Arc::new(MemoryStore::new(sources.clone()));
    if delay.is_zero() {
        return store;
    }
    Arc::new(Faulty::new(store, FaultPlan::seeded(0, 1000, [Fault::Delay(delay)])))
}

async fn run_transfers(flags: &TransferFlags) -> Result<Exit> {
    check_seconds(&flags.bench)?;
    let Workspace { console, scratch: _scratch, sources, bar } = Workspace::make(&flags.bench.subject)?;
    let progress = |step: &str| next(&bar, step);
    let clients = flags.bench.clients.unwrap_or(TRANSFER_CLIENTS_MAX);
    // Its one promise is about the round trips of a single client, whatever the number of clients.
    let plan = || store_plan(&flags.bench, usize::from(clients), Promises { apply: true, demanded: None });
    let in_memory =
        transfers::Bench::open(distant(&sources, flags.delay.0), plan(), sources.clone(), &progress).await?;
    let mut comparisons = vec![in_memory.round_trips().await?];
    match &flags.store {
        None => comparisons.extend(in_memory.side_by_side().await?),
        Some(uri) => {
            let location = Location::Servers(Servers::one(uri.clone(), flags.sole_writer));
            let opened = OpenedStore::open(&location, Access::Transactions, sources.clone()).await?;
            let on_server = transfers::Bench::open(opened.documents(), plan(), sources, &progress).await?;
            comparisons.extend(on_server.side_by_side().await?);
            on_server.remove().await?;
        }
    }
    bar.finish_and_clear();
    console.report(|| report::table(&comparisons), &comparisons)?;
    Ok(exit(&comparisons, flags.bench.subject.strict))
}

async fn run_patterns(flags: &BenchFlags) -> Result<Exit> {
    check_seconds(flags)?;
    let Workspace { console, scratch, sources, bar } = Workspace::make(&flags.subject)?;
    let progress = |step: &str| next(&bar, step);
    let options = Options { cache_bytes: flags.subject.cache_bytes.0, ..Options::default() };
    let embedded = Directory { path: scratch.path.join("store"), options }.open(sources.clone()).await?;
    let clients = flags.clients.unwrap_or(PATTERN_CLIENTS_MAX);
    let plan = store_plan(flags, usize::from(clients), Promises { apply: false, demanded: None });
    let bench = patterns::Bench::open(embedded.clone(), plan, sources, &progress).await?;
    let comparisons = bench.run().await?;
    drop(bench);
    embedded.close().await?;
    bar.finish_and_clear();
    console.report(|| report::table(&comparisons), &comparisons)?;
    Ok(exit(&comparisons, flags.subject.strict))
}

async fn run_counters(flags: &CountersFlags) -> Result<Exit> {
    let CountersFlags { redis, bench: flags } = flags;
    check_seconds(flags)?;
    let Workspace { console, scratch, sources, bar } = Workspace::make(&flags.subject)?;
    let progress = |step: &str| next(&bar, step);
    let options = Options { cache_bytes: flags.subject.cache_bytes.0, ..Options::default() };
    let embedded = Directory { path: scratch.path.join("store"), options }.open(sources.clone()).await?;
    let clients = flags.clients.unwrap_or(COUNTERS_CLIENTS);
    let plan = counters::Plan {
        connections: usize::from(clients),
        items: flags.documents,
        seconds: flags.seconds,
        rounds: usize::from(flags.rounds),
        promises: Promises { apply: clients == COUNTERS_CLIENTS, demanded: flags.demand },
    };
    let figures = counters::run(&plan, &embedded, redis.as_deref(), &sources, &progress).await?;
    embedded.close().await?;
    bar.finish_and_clear();
    let all = figures.all();
    console.report(|| figures.tables(), &all)?;
    Ok(exit(&all, flags.subject.strict))
}

async fn run_proxy(flags: &BenchFlags) -> Result<Exit> {
    check_seconds(flags)?;
    let Workspace { console, scratch: _scratch, sources, bar } = Workspace::make(&flags.subject)?;
    let progress = |step: &str| next(&bar, step);
    let (clients, default) = (flags.clients.unwrap_or(Subject::Server.clients()), Subject::Server.clients());
    let plan = serve::Plan {
        connections: usize::from(clients),
        documents: flags.documents,
        seconds: flags.seconds,
        rounds: usize::from(flags.rounds),
        promises: Promises { apply: clients == default, demanded: flags.demand },
    };
    let document = store::document(0, flags.subject.document_bytes);
    let comparisons = proxy::run(&plan, Arc::clone(&sources.clock), document, &progress).await?;
    bar.finish_and_clear();
    console.report(|| report::table(&comparisons), &comparisons)?;
    Ok(exit(&comparisons, flags.subject.strict))
}

async fn run_process(flags: &ProcessFlags) -> Result<Exit> {
    let Workspace { console, scratch, sources, bar } = Workspace::make(&flags.subject)?;
    let progress = |step: &str| next(&bar, step);
    let plan = process::Plan {
        documents: flags.documents,
        rounds: usize::from(flags.rounds),
        cache_bytes: flags.subject.cache_bytes.0,
    };
    let document = |id| store::document(id, flags.subject.document_bytes);
    let measured = process::run(&plan, sources.clock, &scratch.path, &document, &progress).await?;
    bar.finish_and_clear();
    console.report(|| report::measurements(&measured), &measured)?;
    Ok(exit(&measured, flags.subject.strict))
}

fn store_plan(flags: &BenchFlags, tasks: usize, promises: Promises) -> store::Plan {
    store::Plan {
        tasks,
        promises,
        documents: flags.documents,
        document_bytes: flags.subject.document_bytes,
        seconds: flags.seconds,
        rounds: usize::from(flags.rounds),
        cache_bytes: flags.subject.cache_bytes.0,
    }
}

/// A server over the store, on a port of the loopback interface.
struct Serving {
    address: SocketAddr,
    database: Database,
    shutdown: handfast_server::ShutdownHandle,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn start(embedded: &EmbeddedStore, sources: &Sources) -> Result<Self> {
        let listeners = Listeners::bind(&[Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]).await?;
        let database = Database::local(embedded.clone(), sources.clone());
        let server = Server::new(listeners, handfast_server::Options::default(), database.clone());
        let address = server.addresses().iter().find_map(tcp).context("the server has no address")?;
        let shutdown = server.shutdown_handle();
        Ok(Serving { address, database, shutdown, task: tokio::spawn(server.run()) })
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.shutdown();
        Ok(self.task.await?)
    }
}

fn tcp(address: &Address) -> Option<SocketAddr> {
    match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    }
}

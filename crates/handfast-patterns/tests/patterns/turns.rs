//! Runs several processes in every order in which their operations can reach the store, and kills them at every
//! moment.
//!
//! ```text
//! two processes of three operations:   aaabbb  aababb  aabbab  ..  bbbaaa      20 orders
//! and each beginning of these:         (none)  a  aa  aab  ..                  69 in all
//! ```
//!
//! At the end of each beginning the processes that are not done are dead; two hours later another process recovers,
//! and a check reads the store. So every process is killed after every operation, at every position of the others. If
//! all were done, the check runs before the recovery, too, because nothing needs a recovery then.
//!
//! Each process has its own decorator, which holds up every operation ([`Fault::FreezeBefore`]) until its turn. A page
//! of a cursor comes with its find: the store in memory has read all of it by then.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_store::decorator::{Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, Random, SeededRandom};
use tokio::task::JoinHandle;

use crate::crash::World;

/// Limit on the operations of one process.
const OPERATIONS_MAX: u64 = 100;

/// The code of a process. It has opened its patterns after some operations, which need not be interleaved.
pub(crate) struct Actor {
    opening: u64,
    run: Box<dyn Fn(World) -> Life>,
}

type Life = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Actor {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        opening: u64,
        run: impl Fn(World) -> F + 'static,
    ) -> Self {
        Actor { opening, run: Box::new(move |world| Box::pin(run(world))) }
    }
}

/// The results of all orders.
#[derive(Debug, Default)]
pub(crate) struct Explored {
    pub(crate) orders: u64,
    pub(crate) failures: Vec<String>,
}

impl Explored {
    pub(crate) fn assert_clean(&self, name: &str) {
        println!("{name}: {} orders and moments of death, {} failed", self.orders, self.failures.len());
        assert!(self.failures.is_empty(), "{name}: {:#?}", self.failures);
    }
}

/// A process whose operations wait for their turn.
struct Process {
    store: Arc<Faulty<dyn DocumentStore>>,
    task: JoinHandle<()>,
}

impl Process {
    async fn start(actor: &Actor, world: &World) -> Self {
        let every = (actor.opening..OPERATIONS_MAX).map(|number| (number, Fault::FreezeBefore));
        let store = Arc::new(Faulty::new(Arc::clone(&world.store), Plan::explicit(every)));
        let task = tokio::spawn((actor.run)(world.on(store.clone())));
        let process = Process { store, task };
        process.wait(actor.opening).await;
        process
    }

    /// Waits until the process waits for the turn of a later operation, or is done.
    async fn wait(&self, operations: u64) {
        while !self.task.is_finished() && (self.store.frozen() == 0 || self.store.operations() <= operations) {
            tokio::task::yield_now().await;
        }
        assert!(self.store.operations() < OPERATIONS_MAX, "a process comes to no end");
    }

    async fn turn(&self) {
        loop {
            let operations = self.store.operations();
            self.store.release();
            self.wait(operations).await;
            let page = self.store.injected().last().is_some_and(|held| held.operation == Operation::NextPage);
            if self.task.is_finished() || !page {
                return;
            }
        }
    }

    /// Kills the process unless it is done; returns whether it was done.
    async fn end(self) -> bool {
        let done = self.task.is_finished();
        self.task.abort();
        match self.task.await {
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => done,
        }
    }
}

/// Runs every order. `prepare` makes the initial state; `recover` is another process, two hours later.
pub(crate) async fn every_order(
    actors: &[Actor],
    prepare: impl AsyncFn(&World),
    recover: impl AsyncFn(&World),
    check: impl AsyncFn(&World) -> Result<(), String>,
) -> Explored {
    let mut explored = Explored::default();
    let scenario = Scenario { actors, prepare, recover, check };
    let mut open: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(order) = open.pop() {
        let (unfinished, result) = scenario.play(&order).await;
        explored.orders += 1;
        explored.failures.extend(result.err().map(|what| format!("{order:?}: {what}")));
        open.extend(unfinished.into_iter().map(|next| order.iter().copied().chain([next]).collect()));
    }
    explored
}

/// Runs some orders of many, chosen by a seed, each until a random moment or to the end.
pub(crate) async fn some_orders(
    actors: &[Actor],
    count: u64,
    prepare: impl AsyncFn(&World),
    recover: impl AsyncFn(&World),
    check: impl AsyncFn(&World) -> Result<(), String>,
) -> Explored {
    let order = |seed| {
        let random = SeededRandom::new(seed);
        let length = random.next_u64() % 40;
        (0..length).map(|_| (random.next_u64() % actors.len() as u64) as usize).collect()
    };
    these_orders(actors, (0..count).map(order), prepare, recover, check).await
}

/// Runs these orders.
pub(crate) async fn these_orders(
    actors: &[Actor],
    orders: impl IntoIterator<Item = Vec<usize>>,
    prepare: impl AsyncFn(&World),
    recover: impl AsyncFn(&World),
    check: impl AsyncFn(&World) -> Result<(), String>,
) -> Explored {
    let scenario = Scenario { actors, prepare, recover, check };
    let mut explored = Explored::default();
    for order in orders {
        let (_, result) = scenario.play(&order).await;
        explored.orders += 1;
        explored.failures.extend(result.err().map(|what| format!("{order:?}: {what}")));
    }
    explored
}

/// A scenario of which each order of the turns of its processes is played.
struct Scenario<'a, P, R, C> {
    actors: &'a [Actor],
    /// Makes the initial state.
    prepare: P,
    /// Another process, two hours later.
    recover: R,
    check: C,
}

impl<P, R, C> Scenario<'_, P, R, C>
where
    P: AsyncFn(&World),
    R: AsyncFn(&World),
    C: AsyncFn(&World) -> Result<(), String>,
{
    /// Gives turns in this order to the processes that are not done yet; returns those that are not done at the end.
    async fn play(&self, order: &[usize]) -> (Vec<usize>, Result<(), String>) {
        let world = World::in_memory();
        (self.prepare)(&world).await;
        let mut processes = Vec::new();
        for (number, actor) in (10..).zip(self.actors) {
            processes.push(Process::start(actor, &world.process(number)).await);
        }
        for next in order {
            processes[*next].turn().await;
        }
        let mut unfinished = Vec::new();
        for (number, process) in processes.into_iter().enumerate() {
            if !process.end().await {
                unfinished.push(number);
            }
        }
        if unfinished.is_empty()
            && let Err(what) = (self.check)(&world.process(2)).await
        {
            return (unfinished, Err(format!("nobody died, and {what}")));
        }
        world.clock.advance(Duration::from_secs(2 * 3600));
        (self.recover)(&world.process(3)).await;
        (unfinished, (self.check)(&world.process(4)).await)
    }
}

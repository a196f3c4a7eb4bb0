//! The maximum number of idempotency keys of the embedded form: none is forgotten early, and requests with further ones are refused.

use std::time::Duration;

use handfast_counters::{Error, RememberedKeys};
use handfast_store::Applied;

use crate::world::{World, ad, key, save_all, total, whole};

const KEYS_MAX: usize = 3;
const HOUR: Duration = Duration::from_secs(3_600);

fn world() -> World {
    World { keys_max: KEYS_MAX, ..World::embedded() }
}

#[tokio::test]
async fn at_the_maximum_new_keys_are_refused_and_known_ones_are_still_known() {
    let world = world();
    let counters = world.healthy(1).await;
    for name in ["a", "b", "c"] {
        counters.view(ad("7"), 1, key(name)).await.expect("counted");
        save_all(&counters).await;
        world.clock.advance(HOUR);
    }
    let mut counters = counters;
    for process in 2..4 {
        let refused = counters.view(ad("7"), 1, key("d")).await.expect_err("refused");
        // The first of them was used three hours ago.
        assert!(matches!(refused, Error::KeysFull { keys: 3, wait } if wait == 21 * HOUR), "{refused:?}");
        assert_eq!(refused.applied(), Applied::No, "{refused}");
        assert_eq!(counters.view(ad("7"), 1, key("a")).await.expect("answered"), whole(3), "it was counted");
        let remembered = counters.buffer().remembered_keys();
        assert_eq!(remembered, Some(RememberedKeys { keys: 3, keys_max: 3 }));
        drop(counters);
        counters = world.healthy(process).await;
    }
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(4), "without a key");
    // The first key ends a day after it was used, also in a process that was started later.
    world.clock.advance(21 * HOUR);
    assert_eq!(counters.view(ad("7"), 1, key("d")).await.expect("counted"), whole(5));
    counters.view(ad("7"), 1, key("a")).await.expect_err("the place is taken");
    assert_eq!(counters.view(ad("7"), 1, key("b")).await.expect("answered"), whole(5));
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(5));
}

#[tokio::test]
async fn of_requests_at_once_as_many_keys_are_taken_as_have_a_place() {
    let counters = world().healthy(1).await;
    let requests = ["a", "b", "a", "c", "d", "e", "a", "d"].map(|name| {
        let counters = counters.clone();
        tokio::spawn(async move { counters.view(ad("7"), 1, key(name)).await })
    });
    let (mut answered, mut refused) = (0, 0);
    for request in requests {
        match request.await.expect("ended") {
            Ok(_) => answered += 1,
            Err(Error::KeysFull { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((answered, refused), (5, 3));
    assert_eq!(total(&counters, "7").await, whole(3));
    save_all(&counters).await;
}

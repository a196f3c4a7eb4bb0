//! A pause of the queue holds for all processes.

use handfast_patterns::job_queue::Limits;

use super::*;

#[tokio::test]
async fn nobody_claims_from_a_queue_that_is_paused_until_it_is_resumed() {
    let limits = Limits { concurrency: Some(8), ..Limits::default() };
    for options in [
        JobQueueOptions::default(),
        JobQueueOptions { ordered: true, ..JobQueueOptions::default() },
        JobQueueOptions { limits, ..JobQueueOptions::default() },
    ] {
        let world = World::in_memory();
        let (here, there) =
            (open_with(&world, options.clone()).await.unwrap(), open_with(&world.process(2), options).await.unwrap());
        for number in 0..4 {
            here.enqueue(numbered(number)).await.unwrap();
        }
        let held = claim(&there).await;
        here.pause("the mail server is moved").await.unwrap();
        here.pause("it still is").await.unwrap();
        assert_eq!(here.claim("w", &kinds()).await.unwrap(), None);
        world.clock.advance(Duration::from_secs(1));
        for queue in [&here, &there] {
            assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None);
            assert!(queue.claim_many("w", &kinds(), 5).await.unwrap().is_empty());
            assert_eq!(queue.paused().await.unwrap().unwrap().why, "it still is");
        }
        assert_eq!(there.complete(&held, None).await.unwrap(), ClaimState::Held, "what is with a worker is done");
        assert_eq!(here.depth().await.unwrap().due, 3);
        assert!(here.resume().await.unwrap() && !here.resume().await.unwrap());
        world.clock.advance(Duration::from_secs(1));
        let (_here, _there) = (claim(&here).await, claim(&there).await);
        assert_eq!(there.paused().await.unwrap(), None);
    }
}

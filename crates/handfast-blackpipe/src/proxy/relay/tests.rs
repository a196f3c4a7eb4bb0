use super::{Connection, locked};
use crate::proxy::Proxy;
use crate::proxy::tests::ANY;
use crate::{Rules, Upstream};

/// A long connection does not keep the results of its ended tasks.
#[tokio::test]
async fn tasks_that_have_ended_are_forgotten() {
    let proxy = Proxy::bind(ANY, Upstream::plain("127.0.0.1:1"), Rules::default()).await.unwrap();
    let connection = Connection::new(proxy.shared);
    for _ in 0..100 {
        connection.spawn(async {});
        tokio::task::yield_now().await;
    }
    assert!(locked(&connection.tasks).len() <= 2);
}

use bson::rawdoc;

use super::*;
use crate::commands;

#[tokio::test(start_paused = true)]
async fn a_kill_ends_only_the_command_that_it_names() {
    let operations = Operations::new();
    let client = Arc::new(Client::new(1, String::new(), String::new()));
    let registration = operations.register(&client);
    let body = rawdoc! { "ping": 1 };
    let request = Request::new(&body, &[], Some("d"), false).unwrap();
    let begin = || operations.begin(&client, &request, commands::find("ping").unwrap(), Duration::ZERO);

    let first = begin();
    assert!(operations.kill(first.id()));
    first.killed().await;
    let listed = operations.list();
    assert_eq!((listed.len(), listed[0].1.id), (1, first.id()));
    // The command ends without waiting for the notification.
    assert!(operations.kill(first.id()));
    let first_id = first.id();
    drop(first);
    assert!(operations.list().is_empty() && !operations.kill(first_id));

    let second = begin();
    let waited = tokio::time::timeout(Duration::from_secs(1), second.killed()).await;
    assert!(waited.is_err(), "killed in the place of the one before");
    assert!(!operations.kill(first_id) && operations.kill(second.id()));
    second.killed().await;
    drop(registration);
    assert!(operations.list().is_empty() && !operations.kill(second.id()));
}

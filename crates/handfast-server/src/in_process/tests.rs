use bson::rawdoc;
use handfast_mql::Code;

use super::InProcess;
use crate::auth::{Password, UserName};
use crate::options::Options;
use crate::testing::{ReplyFields, TestServer};

fn server(authentication: bool) -> (TestServer, InProcess) {
    let server = TestServer::in_memory(Options { authentication, ..Options::default() });
    let in_process = InProcess::new(std::sync::Arc::clone(&server.shared));
    (server, in_process)
}

#[tokio::test]
async fn a_client_in_the_process_runs_commands_of_a_connection() {
    let (mut server, in_process) = server(false);
    assert!(!in_process.requires_login());
    let mut client = in_process.connect("http 1");
    let insert = client.run("d", &rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    assert_eq!((insert.double("ok"), insert.int("n")), (1.0, 1));
    assert_eq!(server.connect().run("d", rawdoc! { "count": "c" }).await.int("n"), 1);
    for (command, code) in [(rawdoc! { "no such": "c" }, Code::CommandNotFound), (rawdoc! {}, Code::CommandNotFound)] {
        assert_eq!(client.run("d", &command).await.int("code"), code.0);
    }
    let deep = (0..150).fold(rawdoc! {}, |inner, _| rawdoc! { "a": inner });
    assert_eq!(client.run("d", &rawdoc! { "find": "c", "filter": deep }).await.int("code"), Code::Overflow.0);
    assert_eq!(client.run("a.b", &rawdoc! { "count": "c" }).await.int("code"), Code::InvalidNamespace.0);
}

#[tokio::test]
async fn a_client_in_the_process_has_the_roles_of_its_user() {
    let (server, in_process) = server(true);
    server.add_user("d", "ann", &["read@d"]).await;
    let ann = UserName::new("d", "ann").unwrap();
    let password = || Password::new("ann");
    let mut client = in_process.connect("http 1");
    let find = rawdoc! { "find": "c" };
    assert_eq!(client.run("d", &find).await.int("code"), Code::Unauthorized.0, "without a login");
    assert!(!client.log_in(&ann, Password::new("wrong")).await.unwrap());
    assert!(!client.log_in(&UserName::new("d", "eve").unwrap(), password()).await.unwrap());
    assert!(!client.log_in(&ann, Password::new("a\u{7}")).await.unwrap(), "no user can have this password");
    assert!(client.log_in(&ann, password()).await.unwrap() && client.is_login_current());
    let mut second = client.same_login("http 2");
    for client in [&mut client, &mut second] {
        assert_eq!(client.run("d", &find).await.double("ok"), 1.0);
        let insert = rawdoc! { "insert": "c", "documents": [{}] };
        assert_eq!(client.run("d", &insert).await.int("code"), Code::Unauthorized.0);
    }
    server.shared.users.remove(&ann).await.unwrap();
    assert!(!client.is_login_current());
    assert_eq!(second.run("d", &find).await.int("code"), Code::Unauthorized.0);
}

#[tokio::test]
async fn a_login_by_a_token_ends_with_the_token_and_makes_no_other_one() {
    let (server, in_process) = server(true);
    server.add_user("d", "ann", &["read@d"]).await;
    let ann = UserName::new("d", "ann").unwrap();
    let by_password = in_process.connect("http 1");
    let refused = by_password.add_token("x", None).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthorized, "nobody has logged in");
    assert!(by_password.log_in(&ann, Password::new("ann")).await.unwrap());
    let soon = server.shared.sources.clock.now().timestamp_millis() + 1_000;
    let made = by_password.add_token("reports", Some(bson::DateTime::from_millis(soon))).await.unwrap();
    let mut client = in_process.connect("http 2");
    assert!(!client.log_in_by_token("hft_0").await.unwrap());
    assert!(client.log_in_by_token(&made.text).await.unwrap() && client.is_login_current());
    let mut second = client.same_login("http 3");
    assert_eq!(client.run("d", &rawdoc! { "find": "c" }).await.double("ok"), 1.0);
    for client in [&client, &second] {
        assert_eq!(client.add_token("x", None).await.unwrap_err().code(), Code::Unauthorized);
        assert_eq!(client.tokens(None).await.unwrap_err().code(), Code::Unauthorized);
        assert_eq!(client.revoke_token(None, &made.token.id).await.unwrap_err().code(), Code::Unauthorized);
    }
    // A command that has waited meanwhile does nothing more.
    server.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(second.run("d", &rawdoc! { "find": "c" }).await.int("code"), 13);
    assert!(!client.is_login_current() && !second.is_login_current(), "its time is over");
    assert!(!client.log_in_by_token(&made.text).await.unwrap());
    assert_eq!(by_password.tokens(None).await.unwrap().len(), 1, "it is still shown");
}

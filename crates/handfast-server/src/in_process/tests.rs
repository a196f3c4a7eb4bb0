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

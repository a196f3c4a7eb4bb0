use bson::{Document, doc};
use serde_json::json;

use super::of_reply;
use crate::problem::ProblemKind;

fn error(code: i32) -> Document {
    doc! { "ok": 0.0, "errmsg": "why", "code": code, "codeName": "Name" }
}

#[test]
fn each_code_says_what_the_client_can_do() {
    for (code, kind) in [
        (13, ProblemKind::Forbidden),
        (4, ProblemKind::Missing),
        (121, ProblemKind::Refused),
        (256, ProblemKind::Conflict),
        (11_000, ProblemKind::Conflict),
        (112, ProblemKind::Contended),
        (91, ProblemKind::Unavailable),
        (50, ProblemKind::Unavailable),
        (14_031, ProblemKind::Unavailable),
        (251, ProblemKind::Contended),
        (354, ProblemKind::Failed),
        (1, ProblemKind::Failed),
        (14, ProblemKind::InvalidRequest),
        (40_415, ProblemKind::InvalidRequest),
    ] {
        assert_eq!(of_reply(&error(code)).kind, kind, "{code}");
    }
}

#[test]
fn a_problem_has_what_the_error_has() {
    let mut reply = error(121);
    reply.insert("errInfo", doc! { "available": 7_i64 });
    let problem = of_reply(&reply);
    assert_eq!(problem.detail, "why");
    let members = json!({ "code": 121, "codeName": "Name", "errInfo": { "available": 7 } });
    assert_eq!(serde_json::Value::Object(problem.members), members);
}

#[test]
fn a_change_that_is_based_on_an_older_version_is_not_repeated() {
    let mut reply = error(112);
    reply.insert("errInfo", doc! { "newest": 4 });
    assert_eq!(of_reply(&reply).kind, ProblemKind::Conflict);
}

#[test]
fn an_unknown_outcome_is_more_than_its_code() {
    let mut reply = error(91);
    reply.insert("errorLabels", ["OutcomeUnknown"]);
    assert_eq!(of_reply(&reply).kind, ProblemKind::OutcomeUnknown);
}

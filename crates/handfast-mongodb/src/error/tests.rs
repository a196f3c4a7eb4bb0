use handfast_mql::Code;
use handfast_store::{Applied, ErrorClass};

use super::{Effect, no_answer, of_code, of_driver};

const WRITES: [Effect; 3] = [Effect::Nothing, Effect::One, Effect::Several];

/// Checks the class of a code, and whether a read, a write of one step and one of several may have been
/// applied.
fn check(code: i32, class: ErrorClass, applied: [Applied; 3]) {
    for (effect, applied) in WRITES.into_iter().zip(applied) {
        let error = of_code(code, "text", effect);
        assert_eq!((error.class(), error.applied()), (class, applied), "{code} {effect:?}");
        assert_eq!((error.code(), error.message()), (Code(code), "text"));
    }
}

#[test]
fn codes_have_a_class_and_tell_what_was_done() {
    use Applied::{Maybe, No};
    use ErrorClass::{Command, TransientNetwork};
    // The server is not the primary: the operation did not begin, but an earlier statement may have been
    // applied.
    for code in [10107, 13435, 10058] {
        check(code, TransientNetwork, [No, No, Maybe]);
    }
    // The server stopped during the request.
    for code in [6, 7, 89, 91, 189, 262, 9001, 11600, 11602, 13436] {
        check(code, TransientNetwork, [No, Maybe, Maybe]);
    }
    // The operation was interrupted.
    for code in [1, 8, 24, 50, 11601, 14031] {
        check(code, Command, [No, Maybe, Maybe]);
    }
    // The operation was refused.
    for code in [2, 9, 13, 14, 66, 112, 121, 11000, 40415] {
        check(code, Command, [No, No, No]);
    }
}

#[test]
fn an_error_without_a_text_has_its_name() {
    assert_eq!(of_code(13, "", Effect::One).message(), "Unauthorized");
}

#[test]
fn a_broken_connection_leaves_a_write_in_doubt() {
    for (kind, code) in [
        (std::io::ErrorKind::UnexpectedEof, Code::SocketException),
        (std::io::ErrorKind::ConnectionReset, Code::SocketException),
        (std::io::ErrorKind::TimedOut, Code::NetworkTimeout),
    ] {
        let error = |effect| of_driver(std::io::Error::from(kind).into(), effect);
        for (effect, applied) in WRITES.into_iter().zip([Applied::No, Applied::Maybe, Applied::Maybe]) {
            let error = error(effect);
            assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, applied), "{kind:?}");
            assert_eq!(error.code(), code);
        }
    }
}

#[test]
fn no_answer_in_time_leaves_a_write_in_doubt() {
    let error = no_answer(std::time::Duration::from_millis(1500), Effect::One);
    assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::Maybe));
    assert_eq!(error.message(), "no answer within 1.5 s");
}

use super::super::{keys, variable};
use super::remarks;

fn of(name: &str, value: &str) -> Vec<String> {
    remarks([[name.to_owned(), value.to_owned()]].into_iter())
}

#[test]
fn what_is_no_setting_is_remarked_on() {
    for (name, advice) in [
        ("HANDFAST_CACH_BYTES", "did you mean HANDFAST_CACHE_BYTES?"),
        ("HANDFAST_LISTENS", "did you mean HANDFAST_LISTEN?"),
        ("HANDFAST_TLS_CERT", "did you mean HANDFAST_TLS_CERTIFICATE?"),
        ("HANDFAST_DURABILTY", "did you mean HANDFAST_DURABILITY?"),
        ("HANDFAST_max_cursors", "did you mean HANDFAST_MAX_CURSORS?"),
        ("HANDFAST_CONFIGURATION", "did you mean HANDFAST_CONFIG?"),
        ("HANDFAST_PORT", "use HANDFAST_LISTEN (HOST:PORT)"),
        ("HANDFAST_XYZ", "`handfast config` prints all settings"),
    ] {
        let expected = format!("the environment variable {name} is not a setting, and has no effect; {advice}");
        assert_eq!(of(name, "27018"), [expected]);
    }
}

#[test]
fn what_counts_and_what_is_of_others_is_not() {
    let settings = keys().into_iter().map(|key| variable(&key));
    let ours = ["HANDFAST_CONFIG", "HANDFAST_URI", "HANDFAST_TEST_TOOLS", "HANDFAST_KILLS", "HANDFAST_SIM_SEED"];
    let neighbours = ["HANDFAST_SERVICE_HOST", "HANDFAST_SERVICE_PORT_MAIN", "HANDFAST_PORT_27017_TCP_ADDR"];
    let unrelated = ["PATH", "HANDFAST", "handfast_listen", "MY_HANDFAST_LISTEN"];
    for name in settings.chain([ours.as_slice(), &neighbours, &unrelated].concat().into_iter().map(str::to_owned)) {
        assert_eq!(of(&name, "1"), Vec::<String>::new(), "{name}");
    }
    assert_eq!(of("HANDFAST_PORT", "tcp://10.0.0.11:27017"), Vec::<String>::new());
}

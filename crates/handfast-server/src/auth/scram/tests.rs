use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{ClientFirst, Credentials, Exchange, ITERATIONS, KEY_BYTES, MESSAGE_BYTES_MAX, SALT_BYTES, Unsuitable};

/// RFC 7677, section 3.
const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn pencil() -> Credentials {
    Credentials::derive("pencil", BASE64.decode(SALT).unwrap(), 4096).unwrap()
}

fn begin(credentials: Credentials) -> Exchange {
    let first = ClientFirst::parse(FIRST).unwrap();
    let (exchange, answer) = Exchange::begin_with(&first, credentials, SERVER_NONCE);
    assert_eq!(answer, SERVER_FIRST);
    exchange
}

#[test]
fn the_example_of_rfc_7677_succeeds() {
    assert_eq!(begin(pencil()).finish(FINAL.as_bytes()).as_deref(), Some(SERVER_FINAL));
}

#[test]
fn a_proof_that_differs_in_any_byte_is_refused() {
    for place in 0..FINAL.len() {
        let mut wrong = FINAL.as_bytes().to_vec();
        wrong[place] ^= 1;
        assert_eq!(begin(pencil()).finish(&wrong), None, "{}", String::from_utf8_lossy(&wrong));
    }
    for end in 0..FINAL.len() {
        assert_eq!(begin(pencil()).finish(&FINAL.as_bytes()[..end]), None);
    }
    let other = Credentials::derive("pencil ", BASE64.decode(SALT).unwrap(), 4096).unwrap();
    assert_eq!(begin(other).finish(FINAL.as_bytes()), None);
}

#[test]
fn first_messages_are_parsed_or_refused() {
    let user = |message: &str| ClientFirst::parse(message.as_bytes()).map(|first| first.user);
    assert_eq!(user("n,,n=user,r=x").as_deref(), Some("user"));
    assert_eq!(user("y,,n=user,r=x").as_deref(), Some("user"));
    assert_eq!(user("n,,n=a=2Cb=3Dc,r=x").as_deref(), Some("a,b=c"));
    assert_eq!(user("n,,n=Jürgen,r=x").as_deref(), Some("Jürgen"));
    for wrong in [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=",
        "n,,n=user",
        "n,,n=user,",
        "n,,n=user,r=",
        "n,,n=,r=x",
        "n,,r=x,n=user",
        "p=tls-unique,,n=user,r=x",
        "n,a=other,n=user,r=x",
        "n,,m=ext,n=user,r=x",
        "n,,n=user,r=x,m=ext",
        "N,,n=user,r=x",
        "n,,n=a=b,r=x",
        "n,,n=a=2c,r=x",
        "n,,n=a=,r=x",
        "n,,n=user,r=x y",
        "n,,n=user,r=\u{e9}",
        "n,,n=user,r=x\n",
    ] {
        assert_eq!(user(wrong), None, "{wrong}");
    }
    assert_eq!(ClientFirst::parse(b"n,,n=\xff,r=x"), None);
    assert_eq!(user(&format!("n,,n={},r=x", "u".repeat(MESSAGE_BYTES_MAX))), None);
}

#[test]
fn passwords_are_prepared_by_saslprep() {
    let key = |password: &str| Credentials::derive(password, vec![1], 1).map(|credentials| credentials.stored_key);
    // The mappings are from RFC 4013, section 3.
    assert_eq!(key("I\u{ad}X"), key("IX"));
    assert_eq!(key("\u{aa}"), key("a"));
    assert_eq!(key("\u{2168}"), key("IX"));
    assert_ne!(key("user"), key("USER"));
    assert_eq!(key("\u{7}"), Err(Unsuitable::Forbidden));
    assert_eq!(key("\u{627}1"), Err(Unsuitable::Forbidden));
    assert_eq!(key(""), Err(Unsuitable::Empty));
    assert_eq!(key("\u{ad}"), Err(Unsuitable::Empty));
}

#[test]
fn the_credentials_of_an_unknown_user_are_stable() {
    let (secret, other) = ([7; KEY_BYTES], [8; KEY_BYTES]);
    let nobody = Credentials::of_unknown_user(&secret, "admin.eve");
    assert_eq!(nobody, Credentials::of_unknown_user(&secret, "admin.eve"));
    assert_eq!((nobody.salt.len(), nobody.iterations), (SALT_BYTES, ITERATIONS));
    assert_ne!(nobody.salt, Credentials::of_unknown_user(&secret, "admin.eva").salt);
    assert_ne!(nobody.salt, Credentials::of_unknown_user(&other, "admin.eve").salt);
}

#[test]
fn debug_output_has_no_keys() {
    assert_eq!(format!("{:?}", pencil()), "Credentials { iterations: 4096, .. }");
}

use super::*;

#[test]
fn a_name_is_a_plain_file_name() {
    for good in ["monday", "2026-11-21T03_00.copy", "Öl-2026", "0", "a..b"] {
        assert_eq!(BackupName::new(good).unwrap().as_str(), good);
    }
    for (bad, why) in [
        ("", "must begin with a letter or a digit"),
        (".", "must begin with a letter or a digit"),
        ("..", "must begin with a letter or a digit"),
        (".hidden", "must begin with a letter or a digit"),
        ("-rf", "must begin with a letter or a digit"),
        ("/etc", "must begin with a letter or a digit"),
        ("a/b", "without a path"),
        ("a/../../b", "without a path"),
        ("a\\b", "without a path"),
        ("C:x", "without a path"),
        ("a b", "without a path"),
        ("a\0b", "without a path"),
        ("a\nb", "without a path"),
        ("monday.unfinished", "must not end in '.unfinished'"),
        ("monday.UNFINISHED", "must not end in '.unfinished'"),
        (&"ä".repeat(101), "must not be longer than 200 bytes, and this one has 202"),
    ] {
        let error = BackupName::new(bad).unwrap_err();
        assert_eq!(error.code(), Code::BadValue, "{bad:?}");
        assert!(error.message().contains(why), "{bad:?}: {}", error.message());
    }
    assert!(BackupName::new(&"ä".repeat(100)).is_ok());
}

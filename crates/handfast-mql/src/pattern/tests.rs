use super::*;
use proptest::prelude::*;

#[track_caller]
fn check(pattern: &str, options: &str, matching: &[&str], others: &[&str]) {
    let compiled = Pattern::compile(pattern, options).unwrap();
    for text in matching {
        assert!(compiled.matches(text).unwrap(), "/{pattern}/{options} should match {text:?}");
    }
    for text in others {
        assert!(!compiled.matches(text).unwrap(), "/{pattern}/{options} should not match {text:?}");
    }
}

#[test]
fn classes_are_those_of_ascii() {
    check(r"^\d+$", "", &["12"], &["١٢"]);
    check(r"^\w+$", "", &["a_1"], &["é"]);
    check(r"^\W$", "", &["é", " "], &["a"]);
    check(r"^\s$", "", &[" ", "\t", "\n"], &["\u{a0}"]);
    check(r"^\S$", "", &["\u{a0}"], &[" "]);
    check(r"^[\w.-]+$", "", &["a-b.c_1"], &["é", "a b"]);
    check(r"^[^\d\s]+$", "", &["é-"], &["1", " "]);
    check(r"^[\D]$", "", &["é"], &["1"]);
    check(r"^\h$", "", &[" ", "\u{a0}", "\t"], &["a", "\n"]);
    check(r"^\v$", "", &["\n", "\u{2028}"], &["v", " "]);
    check(r"^\H\V$", "", &["xx"], &[" x", "x\n"]);
    check("^[[:alpha:]]+$", "", &["ab"], &["1"]);
}

#[test]
fn brackets_and_dashes_in_classes_are_letters() {
    check("^[[]$", "", &["["], &["]"]);
    check("^[]a]+$", "", &["]a"], &["b"]);
    check("^[^]a]$", "", &["b"], &["]"]);
    check(r"^[a&&b]+$", "", &["a&b"], &["c"]);
    check("^[~~]$", "", &["~"], &["a"]);
    check(r"^[\d-x]+$", "", &["1-x"], &["y"]);
    check(r"^[a-\d]+$", "", &["a-1"], &["b"]);
    check(r"^[a-c-]+$", "", &["b-"], &["d"]);
    check(r"^[\]\[]+$", "", &["[]"], &["a"]);
    check("^[a b#]+$", "x", &["a b#"], &["c"]);
    check(r"^[\b]$", "", &["\u{8}"], &["b"]);
    check(r"^[\Q]^\E]+$", "", &["]^"], &["Q"]);
}

#[test]
fn escapes_are_translated() {
    check(r"^\Qa.b\E+$", "", &["a.bb"], &["axb"]);
    check(r"^\Qa.b", "", &["a.b"], &["axb"]);
    check(r"^\Qa b\E$", "x", &["a b"], &["ab"]);
    check(r"^\0$", "", &["\0"], &["0"]);
    check(r"^\07$", "", &["\u{7}"], &["\0"]);
    check(r"^\cA\cz$", "", &["\u{1}\u{1a}"], &["cA"]);
    check(r"^\<a\>\/\-\_$", "", &["<a>/-_"], &["a"]);
    check(r"^\x{e9}\xe9$", "", &["éé"], &["e"]);
    check("(*UTF8)^é$", "", &["é"], &["e"]);
    check("^a{$", "", &["a{"], &["a"]);
}

#[test]
fn a_dollar_matches_before_a_newline_at_the_end() {
    check("^ab$", "", &["ab", "ab\n"], &["ab\n\n", "ab\nc"]);
    check("^ab$", "m", &["ab\ncd", "x\nab"], &["abc"]);
    check(r"^ab\z", "", &["ab"], &["ab\n"]);
    check(r"^ab\Z", "", &["ab", "ab\n"], &["ab\nc"]);
    let pattern = Pattern::compile("b$", "").unwrap();
    assert_eq!(pattern.captures_at("ab\n", 0).unwrap(), Some(vec![Some((1, 2))]));
    assert_eq!(pattern.captures_at("ab\n", 2).unwrap(), None);
}

#[test]
fn look_around_and_back_references_match() {
    check(r"^(?=.*\d)(?!.*x).+$", "", &["a1"], &["a", "1x"]);
    check(r"(?<=a)b", "", &["ab"], &["cb"]);
    check(r"^(a|b)\1$", "", &["aa"], &["ab"]);
    check(r"^a++b$", "", &["aab"], &["aa"]);
    check(r"^(?<n>a)\k<n>$", "", &["aa"], &["a"]);
}

#[test]
fn syntax_with_another_meaning_is_refused() {
    for pattern in ["a(?R)b", r"\(a(?R)?\)", r"[(](?R)", r"\X", "(?|a|b)"] {
        assert_eq!(Pattern::compile(pattern, "").unwrap_err().code(), Code(51_091), "{pattern}");
    }
    check(r"^(\(?R)$", "", &["(R", "R"], &["?R"]);
    check(r"^[(?R)]$", "", &["?"], &["a"]);
    check(r"^\Q(?R)\E$", "", &["(?R)"], &["R"]);
}

proptest! {
    #[test]
    fn arbitrary_patterns_do_not_panic(pattern in r"[\\\[\]()^$.*+?{}|a\-dwsQE0c:& ]{0,12}", text in "[ab1 \n]{0,8}") {
        if let Ok(compiled) = Pattern::compile(&pattern, "") {
            let _ = compiled.matches(&text);
        }
    }
}

use bson::{Bson, DateTime, bson, doc};

use crate::expression::testing::{check, check_error, fails, gives};

#[test]
fn strings_are_joined_and_change_case() {
    gives(doc! { "$concat": ["a", "-", "b"] }, "a-b");
    gives(doc! { "$concat": [] }, "");
    check(doc! { "$concat": ["a", "$x"] }, doc! {}, Bson::Null);
    fails(doc! { "$concat": ["a", 1] }, 16702, "$concat only supports strings, not int");
    gives(doc! { "$toLower": "ÄBC" }, "Äbc");
    gives(doc! { "$toUpper": "äbc" }, "äBC");
    gives(doc! { "$toLower": null }, "");
    gives(doc! { "$toUpper": 12.5 }, "12.5");
    gives(doc! { "$toLower": DateTime::from_millis(0) }, "1970-01-01t00:00:00.000z");
    check_error(doc! { "$toLower": [bson!([1])] }, doc! {}, 16007);
    gives(doc! { "$strcasecmp": ["abc", "ABD"] }, -1);
    gives(doc! { "$strcasecmp": ["A", "a"] }, 0);
    gives(doc! { "$strcasecmp": [null, ""] }, 0);
}

#[test]
fn lengths_count_bytes_or_code_points() {
    gives(doc! { "$strLenBytes": "cafétéria" }, 11);
    gives(doc! { "$strLenCP": "cafétéria" }, 9);
    gives(doc! { "$strLenCP": { "$literal": "$€λ寿司" } }, 5);
    fails(doc! { "$strLenCP": 1 }, 34471, "$strLenCP requires a string argument, found: int");
    check_error(doc! { "$strLenBytes": "$x" }, doc! {}, 34473);
}

#[test]
fn substrings_are_cut_by_bytes_or_code_points() {
    gives(doc! { "$substr": ["hello", 1, 3] }, "ell");
    gives(doc! { "$substrBytes": ["hello", 3, -1] }, "lo");
    gives(doc! { "$substrBytes": ["hello", 9, 1] }, "");
    gives(doc! { "$substrBytes": ["cafétéria", 0, 5] }, "café");
    gives(doc! { "$substrBytes": [null, 0, 5] }, "");
    gives(doc! { "$substrBytes": [1234, 1.9, 2] }, "23");
    check_error(doc! { "$substrBytes": ["cafétéria", 0, 4] }, doc! {}, 28657);
    check_error(doc! { "$substrBytes": ["cafétéria", 4, 4] }, doc! {}, 28656);
    check_error(doc! { "$substrBytes": ["a", "x", 4] }, doc! {}, 16034);
    check_error(doc! { "$substrBytes": ["a", 0, "x"] }, doc! {}, 16035);
    check_error(doc! { "$substrBytes": ["a", -1, 1] }, doc! {}, 50752);
    gives(doc! { "$substrCP": ["寿司sushi", 0, 6] }, "寿司sush");
    gives(doc! { "$substrCP": ["abc", 5, 6] }, "");
    check_error(doc! { "$substrCP": ["abc", "x", 6] }, doc! {}, 34450);
    check_error(doc! { "$substrCP": ["abc", 1.5, 6] }, doc! {}, 34451);
    check_error(doc! { "$substrCP": ["abc", 1, "x"] }, doc! {}, 34452);
    check_error(doc! { "$substrCP": ["abc", 1, 1.5] }, doc! {}, 34453);
    check_error(doc! { "$substrCP": ["abc", 1, -1] }, doc! {}, 34454);
    check_error(doc! { "$substrCP": ["abc", -1, 1] }, doc! {}, 34455);
}

#[test]
fn positions_count_bytes_or_code_points() {
    gives(doc! { "$indexOfBytes": ["cafeteria", "e"] }, 3);
    gives(doc! { "$indexOfBytes": ["cafétéria", "é"] }, 3);
    gives(doc! { "$indexOfBytes": ["foo.bar.fi", ".", 5] }, 7);
    gives(doc! { "$indexOfBytes": ["vanilla", "ll", 0, 2] }, -1);
    gives(doc! { "$indexOfBytes": ["vanilla", "ll", 12] }, -1);
    gives(doc! { "$indexOfBytes": ["vanilla", "nilla", 3] }, -1);
    gives(doc! { "$indexOfBytes": ["é", "x", 1] }, -1);
    gives(doc! { "$indexOfCP": ["cafétéria", "t"] }, 4);
    gives(doc! { "$indexOfCP": ["cafétéria", "é", 4] }, 5);
    gives(doc! { "$indexOfCP": ["abc", "", 3] }, 3);
    gives(doc! { "$indexOfCP": ["abc", "c", 0, 2] }, -1);
    gives(doc! { "$indexOfCP": [null, "c"] }, Bson::Null);
    check_error(doc! { "$indexOfBytes": [1, "c"] }, doc! {}, 40091);
    check_error(doc! { "$indexOfBytes": ["c", 1] }, doc! {}, 40092);
    check_error(doc! { "$indexOfCP": [1, "c"] }, doc! {}, 40093);
    check_error(doc! { "$indexOfCP": ["c", 1] }, doc! {}, 40094);
    check_error(doc! { "$indexOfCP": ["c", "c", "x"] }, doc! {}, 40096);
    check_error(doc! { "$indexOfCP": ["c", "c", -1] }, doc! {}, 40097);
}

#[test]
fn strings_are_split_and_trimmed() {
    gives(doc! { "$split": ["June-15-2013", "-"] }, bson!(["June", "15", "2013"]));
    gives(doc! { "$split": ["astronomical", "astro"] }, bson!(["", "nomical"]));
    gives(doc! { "$split": ["pea green boat", "owl"] }, bson!(["pea green boat"]));
    gives(doc! { "$split": [null, "x"] }, Bson::Null);
    check_error(doc! { "$split": [1, "x"] }, doc! {}, 40085);
    check_error(doc! { "$split": ["x", 1] }, doc! {}, 40086);
    check_error(doc! { "$split": ["x", ""] }, doc! {}, 40087);
    gives(doc! { "$trim": { "input": " \n good  bye \t " } }, "good  bye");
    gives(doc! { "$trim": { "input": " ggggoodbyeeeee", "chars": "ge" } }, " ggggoodby");
    gives(doc! { "$trim": { "input": " ggggoodbyeeeee", "chars": " ge" } }, "oodby");
    gives(doc! { "$ltrim": { "input": " a " } }, "a ");
    gives(doc! { "$rtrim": { "input": " a " } }, " a");
    gives(doc! { "$trim": { "input": null } }, Bson::Null);
    gives(doc! { "$trim": { "input": "a", "chars": null } }, Bson::Null);
    check_error(doc! { "$trim": "x" }, doc! {}, 50696);
    check_error(doc! { "$trim": {} }, doc! {}, 50695);
    check_error(doc! { "$trim": { "input": "a", "x": 1 } }, doc! {}, 50694);
    check_error(doc! { "$trim": { "input": 1 } }, doc! {}, 50699);
    check_error(doc! { "$trim": { "input": "a", "chars": 1 } }, doc! {}, 50700);
}

#[test]
fn occurrences_are_replaced() {
    gives(doc! { "$replaceOne": { "input": "abcabc", "find": "b", "replacement": "X" } }, "aXcabc");
    gives(doc! { "$replaceAll": { "input": "abcabc", "find": "b", "replacement": "XX" } }, "aXXcaXXc");
    gives(doc! { "$replaceAll": { "input": "abc", "find": "x", "replacement": "y" } }, "abc");
    gives(doc! { "$replaceAll": { "input": null, "find": "x", "replacement": "y" } }, Bson::Null);
    check_error(doc! { "$replaceOne": 1 }, doc! {}, 51751);
    check_error(doc! { "$replaceOne": { "input": "a", "find": "b" } }, doc! {}, 51747);
    check_error(doc! { "$replaceOne": { "input": "a", "replacement": "b" } }, doc! {}, 51748);
    check_error(doc! { "$replaceOne": { "find": "a", "replacement": "b" } }, doc! {}, 51749);
    check_error(doc! { "$replaceOne": { "input": "a", "find": "a", "replacement": "b", "x": 1 } }, doc! {}, 51750);
    check_error(doc! { "$replaceOne": { "input": 1, "find": "a", "replacement": "b" } }, doc! {}, 51746);
    check_error(doc! { "$replaceOne": { "input": "a", "find": 1, "replacement": "b" } }, doc! {}, 51745);
    check_error(doc! { "$replaceOne": { "input": "a", "find": "a", "replacement": 1 } }, doc! {}, 51744);
}

#[test]
fn regular_expressions_find_matches_and_groups() {
    let regex = |pattern: &str, options: &str| {
        Bson::RegularExpression(bson::Regex {
            pattern: pattern.try_into().unwrap(),
            options: options.try_into().unwrap(),
        })
    };
    gives(doc! { "$regexMatch": { "input": "Hello", "regex": "^h", "options": "i" } }, true);
    gives(doc! { "$regexMatch": { "input": "Hello", "regex": regex("^h", "i") } }, true);
    gives(doc! { "$regexMatch": { "input": "Hello", "regex": "^h" } }, false);
    gives(doc! { "$regexMatch": { "input": null, "regex": "^h" } }, false);
    gives(doc! { "$regexMatch": { "input": "a\nb", "regex": "^b", "options": "m" } }, true);
    gives(doc! { "$regexMatch": { "input": "a\nb", "regex": "a.b", "options": "s" } }, true);
    gives(doc! { "$regexMatch": { "input": "ab", "regex": "a b # no", "options": "x" } }, true);
    gives(doc! { "$regexMatch": { "input": "foobar", "regex": "foo(?!baz)" } }, true);
    gives(doc! { "$regexMatch": { "input": "abab", "regex": "^(ab)\\1$" } }, true);
    check(doc! { "$regexMatch": { "input": "$t", "regex": "$p" } }, doc! { "t": "abc", "p": "b" }, true);
    gives(
        doc! { "$regexFind": { "input": "café.xyz", "regex": "([^.]+)\\.(x)(q)?" } },
        doc! { "match": "café.x", "idx": 0, "captures": ["café", "x", null] },
    );
    gives(doc! { "$regexFind": { "input": "äb", "regex": "b" } }, doc! { "match": "b", "idx": 1, "captures": [] });
    gives(doc! { "$regexFind": { "input": "a", "regex": "b" } }, Bson::Null);
    gives(
        doc! { "$regexFindAll": { "input": "éa1b2", "regex": "([a-z])\\d" } },
        bson!([{ "match": "a1", "idx": 1, "captures": ["a"] }, { "match": "b2", "idx": 3, "captures": ["b"] }]),
    );
    gives(
        doc! { "$regexFindAll": { "input": "ab", "regex": "" } },
        bson!([
            { "match": "", "idx": 0, "captures": [] }, { "match": "", "idx": 1, "captures": [] }, { "match": "", "idx": 2, "captures": [] },
        ]),
    );
    gives(doc! { "$regexFindAll": { "input": null, "regex": "a" } }, bson!([]));
    check_error(doc! { "$regexMatch": 1 }, doc! {}, 51103);
    check_error(doc! { "$regexMatch": { "regex": "a" } }, doc! {}, 51022);
    check_error(doc! { "$regexMatch": { "input": "a" } }, doc! {}, 51023);
    check_error(doc! { "$regexMatch": { "input": "a", "regex": "a", "x": 1 } }, doc! {}, 51031);
    check_error(doc! { "$regexMatch": { "input": 1, "regex": "a" } }, doc! {}, 51104);
    check_error(doc! { "$regexMatch": { "input": "a", "regex": 1 } }, doc! {}, 51105);
    check_error(doc! { "$regexMatch": { "input": "a", "regex": "a", "options": 1 } }, doc! {}, 51106);
    check_error(doc! { "$regexMatch": { "input": "a", "regex": regex("a", "i"), "options": "m" } }, doc! {}, 51107);
    check_error(doc! { "$regexMatch": { "input": "a", "regex": "a", "options": "q" } }, doc! {}, 51108);
    check_error(doc! { "$regexMatch": { "input": "a", "regex": "(" } }, doc! {}, 51111);
    // A pattern with too many backtracking steps ends in an error.
    check_error(
        doc! { "$regexMatch": { "input": format!("{}b", "a".repeat(60)), "regex": "^(?:(a+)\\1?)+$" } },
        doc! {},
        51156,
    );
}

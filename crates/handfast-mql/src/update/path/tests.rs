use super::*;

fn check_error(path: &str, code: Code, message: &str) {
    let error = UpdatePath::parse(path).unwrap_err();
    assert_eq!((error.code(), error.message()), (code, message), "{path}");
}

#[test]
fn paths_are_split_into_components() {
    let path = UpdatePath::parse("a.$.0.$[].$[x].$ref").unwrap();
    let field = |name: &str| Component::Field(FieldName::new(name));
    let expected = [
        field("a"),
        Component::Positional,
        field("0"),
        Component::Every,
        Component::Filtered("x".into()),
        field("$ref"),
    ];
    assert_eq!(path.components, expected);
    assert_eq!(path.prefix(3), "a.$.0");
    assert!(!path.is_static());
}

#[test]
fn invalid_paths_are_refused() {
    check_error("", Code::EmptyFieldName, "An empty update path is not valid.");
    for path in ["a.", ".a", "a..b", "."] {
        let message = format!("The update path '{path}' contains an empty field name, which is not allowed.");
        check_error(path, Code::EmptyFieldName, &message);
    }
    check_error("$.a", Code::BadValue, "Cannot have positional (i.e. '$') element in the first position in path '$.a'");
    check_error(
        "$[].a",
        Code::BadValue,
        "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '$[].a'",
    );
    check_error("a.$.b.$", Code::BadValue, "Too many positional (i.e. '$') elements found in path 'a.$.b.$'");
    let deep = vec!["a"; COMPONENTS_MAX + 1].join(".");
    assert_eq!(UpdatePath::parse(&deep).unwrap_err().code(), Code::Overflow);
    assert!(UpdatePath::parse(&deep[2..]).is_ok());
}

#[test]
fn numeric_names_are_ordered_as_numbers() {
    let mut names: Vec<FieldName> =
        ["b", "10", "a", "9", "1a", "007", "7", "2", "B", ""].into_iter().map(FieldName::new).collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(FieldName::as_str).collect();
    assert_eq!(names, ["2", "007", "7", "9", "10", "", "1a", "B", "a", "b"]);
}

#[test]
fn components_are_parsed_as_indexes() {
    assert_eq!(FieldName::new("12").index(), Some(12));
    assert_eq!(FieldName::new("012").index(), Some(12));
    for name in ["", "+1", "-1", "1a", "99999999999999999999999"] {
        assert_eq!(FieldName::new(name).index(), None, "{name}");
    }
}

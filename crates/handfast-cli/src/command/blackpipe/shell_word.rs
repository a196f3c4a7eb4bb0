//! Words of a command line, as a shell reads them.

/// Returns a flag with its value as words of a command line. A value that looks like a flag is joined with an equals sign.
pub(super) fn flag(name: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{separator}{}", quoted(value))
}

/// Returns a word as a shell reads it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=@%+,".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        let check = |word: &str, expected: &str| assert_eq!(quoted(word), expected);
        check("python", "python");
        check("./a-b_c.py", "./a-b_c.py");
        check("", "''");
        check("a b", "'a b'");
        check("$HOME", "'$HOME'");
        check("it's", r"'it'\''s'");
    }
}

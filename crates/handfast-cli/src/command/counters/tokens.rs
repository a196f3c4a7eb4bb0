//! The file with the hashes of tokens.

use std::path::Path;

use anyhow::Result;
use handfast_http::TokenHash;

use crate::exit::Usage;

/// Reads a hash from each line: its first word, as `sha256sum` prints it. Empty lines and those that begin with `#` are left out.
///
/// # Errors
/// The file cannot be read; a line has no hash; the file has none.
pub(super) fn read(path: &Path) -> Result<Vec<TokenHash>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("--tokens: cannot read the file {}: {error}", path.display())))?;
    parse(&text).map_err(|error| Usage(format!("--tokens: {}{error}", path.display())).into())
}

fn parse(text: &str) -> Result<Vec<TokenHash>, String> {
    let mut hashes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(word) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else { continue };
        let hash = word.parse().map_err(|error| {
            let advice = "`printf %s TOKEN | sha256sum` prints that of the token TOKEN";
            format!(", line {}: {error}, and {advice}", index + 1)
        });
        hashes.push(hash?);
    }
    if hashes.is_empty() {
        return Err(" has no hash of a token: `printf %s TOKEN | sha256sum` prints that of the token TOKEN".to_owned());
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use handfast_http::TokenHash;

    use super::parse;

    #[test]
    fn each_line_is_the_hash_of_a_token() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(parse(&format!("# site\n\n{abc}  -\n{abc}\n")), Ok(vec![TokenHash::of("abc"); 2]));
        assert!(parse("# none\n").is_err_and(|error| error.contains("no hash")));
        assert!(parse(&format!("{abc}\nsecret\n")).is_err_and(|error| error.contains(", line 2: the hash of a token")));
    }
}

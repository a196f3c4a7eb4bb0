//! A line of CSV as cells (RFC 4180, without line ends in cells: a row is a line, so that every row has a number).

/// The cells of a line.
///
/// # Errors
/// Quotes that do not fit together: a row about money is not guessed at.
pub(super) fn cells(line: &str) -> Result<Vec<String>, &'static str> {
    let mut cells = Vec::new();
    let mut rest = line;
    loop {
        let (cell, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_cell(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (cell, after) = rest.split_at(end);
                if cell.contains('"') {
                    return Err(
                        "a quote is in the middle of a cell: a cell with quotes is quoted, and they are doubled",
                    );
                }
                (cell.to_owned(), after)
            }
        };
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(cells),
            None => return Err("something stands between the end of a quoted cell and the next comma"),
        }
    }
}

/// A cell up to its closing quote, and what comes after that.
fn quoted_cell(quoted: &str) -> Result<(String, &str), &'static str> {
    let (mut cell, mut rest) = (String::new(), quoted);
    loop {
        let (text, after) = rest.split_once('"').ok_or("a quote is not closed in its line")?;
        cell.push_str(text);
        match after.strip_prefix('"') {
            Some(more) => {
                cell.push('"');
                rest = more;
            }
            None => return Ok((cell, after)),
        }
    }
}

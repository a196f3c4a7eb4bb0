//! Bytes as hexadecimal digits, two of them for each byte.

/// Returns the digits of bytes, in lower case.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the digits of `N` bytes; `None` for any other text.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    // A sign would be read as a digit.
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn bytes_are_read_as_they_were_written() {
        let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 8).expect("a byte"));
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        for bad in ["", "0f", &"g".repeat(64), &"+0".repeat(32), &"0".repeat(65), &"é".repeat(32)] {
            assert_eq!(decode::<32>(bad), None, "{bad}");
        }
    }
}

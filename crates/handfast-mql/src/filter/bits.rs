//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet` and `$bitsAnyClear`.
//!
//! Positions count from the least significant bit, 0. A number is seen as two's complement without end, so that a negative
//! one has all high bits set; binary data is little end first and ends in zeros.

use bson::{RawBsonRef, spec::BinarySubtype};

use crate::bson_type::type_name;
use crate::{Code, Error, Number, Result};

/// The condition on the bits at the positions of a [`BitTest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitCondition {
    /// `$bitsAllSet`.
    AllSet,
    /// `$bitsAllClear`.
    AllClear,
    /// `$bitsAnySet`.
    AnySet,
    /// `$bitsAnyClear`.
    AnyClear,
}

/// A test of the bits of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitTest {
    condition: BitCondition,
    positions: Vec<u32>,
}

impl BitTest {
    /// Returns the condition on the bits.
    pub fn condition(&self) -> BitCondition {
        self.condition
    }

    /// Returns the positions of the bits, in ascending order.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    pub(super) fn compile(name: &str, condition: BitCondition, operand: RawBsonRef<'_>) -> Result<Self> {
        let mut positions = match operand {
            RawBsonRef::Array(array) => {
                let mut positions = Vec::new();
                for value in array {
                    positions.push(position(name, value?)?);
                }
                positions
            }
            RawBsonRef::Binary(binary) => {
                (0..binary.bytes.len() as u32 * 8).filter(|at| byte_bit(binary.bytes, *at)).collect()
            }
            value => {
                let mask = mask(name, value)?;
                (0..63).filter(|at| mask >> at & 1 == 1).collect()
            }
        };
        positions.sort_unstable();
        positions.dedup();
        Ok(BitTest { condition, positions })
    }

    pub(super) fn accepts(&self, value: RawBsonRef<'_>) -> bool {
        match value {
            RawBsonRef::Binary(binary) if binary.subtype != BinarySubtype::Encrypted => {
                self.ask(|at| byte_bit(binary.bytes, at))
            }
            value => match Number::of(value).and_then(Number::to_i64_exact) {
                // All bits above bit 63 are equal to the sign.
                Some(number) => self.ask(|at| number >> at.min(63) & 1 == 1),
                None => false,
            },
        }
    }

    fn ask(&self, bit: impl Fn(u32) -> bool) -> bool {
        let mut positions = self.positions.iter();
        match self.condition {
            BitCondition::AllSet => positions.all(|at| bit(*at)),
            BitCondition::AllClear => positions.all(|at| !bit(*at)),
            BitCondition::AnySet => positions.any(|at| bit(*at)),
            BitCondition::AnyClear => positions.any(|at| !bit(*at)),
        }
    }
}

fn byte_bit(bytes: &[u8], at: u32) -> bool {
    bytes.get(at as usize / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

fn position(name: &str, value: RawBsonRef<'_>) -> Result<u32> {
    let fail = |what: &str| Error::new(Code::BadValue, format!("Failed to parse bit position. {what} in: {name}"));
    let number = Number::of(value).ok_or_else(|| fail("Expected a number"))?;
    let position = number.to_i64_exact().ok_or_else(|| fail("Expected an integer"))?;
    let position = u32::try_from(position).ok().filter(|position| *position <= i32::MAX as u32);
    position.ok_or_else(|| fail("bit positions must be >= 0 and <= 2147483647"))
}

fn mask(name: &str, value: RawBsonRef<'_>) -> Result<i64> {
    let bad = |message: String| Error::new(Code::BadValue, message);
    let number = Number::of(value).ok_or_else(|| {
        bad(format!("{name} takes an Array, a number, or a BinData but received: {}", type_name(value)))
    })?;
    let mask = number
        .to_i64_exact()
        .ok_or_else(|| Error::new(Code::FailedToParse, format!("Expected an integer: {name}: {}", number.to_f64())))?;
    if mask < 0 {
        return Err(Error::new(Code::FailedToParse, format!("Expected a non-negative number in: {name}: {mask}")));
    }
    Ok(mask)
}

//! Unsigned integers of 256 bits, which hold the product of two coefficients before it is rounded.

/// 256 bits, least significant limb first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct U256([u64; 4]);

impl U256 {
    pub(super) const fn new(value: u128) -> Self {
        U256([value as u64, (value >> 64) as u64, 0, 0])
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns the value, if it fits.
    pub(super) fn to_u128(self) -> Option<u128> {
        let [a, b, c, d] = self.0;
        (c == 0 && d == 0).then_some(u128::from(b) << 64 | u128::from(a))
    }

    pub(super) fn is_odd(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns the product; the factors of this module stay below 2^113 and 2^128, so it always fits.
    pub(super) fn product(a: u128, b: u128) -> Self {
        let (a, b) = (U256::new(a).0, U256::new(b).0);
        let mut limbs = [0_u64; 4];
        for (i, x) in a.iter().take(2).enumerate() {
            let mut carry = 0_u128;
            for (j, y) in b.iter().take(2).enumerate() {
                let sum = u128::from(*x) * u128::from(*y) + u128::from(limbs[i + j]) + carry;
                limbs[i + j] = sum as u64;
                carry = sum >> 64;
            }
            limbs[i + 2] = carry as u64;
        }
        U256(limbs)
    }

    /// Returns the sum; wraps at 2^256, which the callers' bounds keep out of reach.
    pub(super) fn plus(self, other: Self) -> Self {
        let mut carry = false;
        self.zip(other, |a, b| {
            let (sum, first) = a.overflowing_add(b);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            carry = first || second;
            sum
        })
    }

    /// Returns the difference; the caller knows that `other` is not greater.
    pub(super) fn minus(self, other: Self) -> Self {
        let mut borrow = false;
        self.zip(other, |a, b| {
            let (difference, first) = a.overflowing_sub(b);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            borrow = first || second;
            difference
        })
    }

    /// Returns quotient and remainder by a small divisor.
    pub(super) fn div_rem(self, divisor: u64) -> (Self, u64) {
        let mut limbs = self.0;
        let mut rest = 0_u128;
        for limb in limbs.iter_mut().rev() {
            let value = rest << 64 | u128::from(*limb);
            *limb = (value / u128::from(divisor)) as u64;
            rest = value % u128::from(divisor);
        }
        (U256(limbs), rest as u64)
    }

    /// Returns how many decimal digits it has; 0 has one.
    pub(super) fn digits(self) -> u32 {
        let mut value = self;
        let mut digits = 0;
        loop {
            if let Some(small) = value.to_u128() {
                return digits + small.checked_ilog10().unwrap_or(0) + 1;
            }
            value = value.div_rem(10_u64.pow(19)).0;
            digits += 19;
        }
    }

    fn zip(self, other: Self, mut limb: impl FnMut(u64, u64) -> u64) -> Self {
        let [a0, a1, a2, a3] = self.0;
        let [b0, b1, b2, b3] = other.0;
        U256([limb(a0, b0), limb(a1, b1), limb(a2, b2), limb(a3, b3)])
    }
}

impl Ord for U256 {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

impl PartialOrd for U256 {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

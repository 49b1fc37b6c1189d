//! Whole numbers and decimals as bytes of text.
//!
//! Rows may be many and come a hundred times a second: numbers are put down as the integers that they are, without a detour by
//! way of the exact decimals of a fraction.

/// Most letters that a number has, and more: all digits of one of 64 bits with commas between them are 26.
const MOST: usize = 32;

/// A number's letters.
pub(super) struct Number {
    /// Filled from the end, blank before that.
    letters: [u8; MOST],
    first: usize,
}

impl Number {
    const EMPTY: Self = Self { letters: [b' '; MOST], first: MOST };

    /// A whole number.
    pub(super) const fn whole(value: u64) -> Self {
        Self::EMPTY.before(value, 0)
    }

    /// A whole number with thousands apart.
    pub(super) const fn grouped(value: u64) -> Self {
        Self::EMPTY.before(value, 3)
    }

    /// So many `units` as a decimal of the last of `decimals` places, rounded.
    pub(super) const fn fixed(value: u64, units: u64, decimals: u32) -> Self {
        let mut rounded = value / units + (value % units >= units.div_ceil(2)) as u64;
        let mut number = Self::EMPTY;
        let mut place = 0;
        while place < decimals {
            number.letter(b'0' + (rounded % 10) as u8);
            rounded /= 10;
            place += 1;
        }
        number.letter(b'.');
        number.before(rounded, 0)
    }

    /// Puts digits before what is there, with a comma between as many each; 0 for none.
    const fn before(mut self, mut value: u64, group: u32) -> Self {
        let mut digits = 0;
        loop {
            self.letter(b'0' + (value % 10) as u8);
            value /= 10;
            if value == 0 {
                return self;
            }
            digits += 1;
            if digits == group {
                self.letter(b',');
                digits = 0;
            }
        }
    }

    const fn letter(&mut self, letter: u8) {
        self.first -= 1;
        self.letters[self.first] = letter;
    }

    /// Writes it.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.letters[self.first..]);
    }

    /// Writes it at the right end of so many letters, or of as many as it takes with a gap before it.
    pub(super) fn right(&self, gap: usize, width: usize, into: &mut Vec<u8>) {
        if width > MOST {
            into.resize(into.len() + width - MOST, b' ');
        }
        into.extend_from_slice(&self.letters[(self.first - gap).min(MOST.saturating_sub(width))..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: &Number, width: usize) -> String {
        let mut text = Vec::new();
        number.right(1, width, &mut text);
        let mut bare = Vec::new();
        number.write(&mut bare);
        assert_eq!(text[0], b' ');
        assert_eq!(text.trim_ascii_start(), bare);
        String::from_utf8(text[1..].to_vec()).unwrap()
    }

    #[test]
    fn numbers_are_what_the_library_makes_of_them() {
        for value in [0, 7, 10, 999, 1_000, 12_345, 999_999, 1_000_000, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(written(&Number::whole(value), 0), value.to_string());
            assert_eq!(written(&Number::grouped(value), 0), crate::format::count(value));
            assert_eq!(written(&Number::whole(value), 41), format!("{value:>40}"));
            let (seconds, rest) = (value / 1_000_000_000, value % 1_000_000_000);
            assert_eq!(written(&Number::fixed(value, 1, 9), 13), format!("{:>12}", format!("{seconds}.{rest:09}")));
        }
    }

    #[test]
    fn decimals_are_rounded() {
        let cases = [(0, "0.00"), (49, "0.00"), (50, "0.01"), (149, "0.01"), (9_949, "0.99"), (9_950, "1.00")];
        for (value, text) in cases {
            assert_eq!(written(&Number::fixed(value, 100, 2), 0), text);
        }
        assert_eq!(written(&Number::fixed(u64::MAX, 1_000, 3), 0), "18446744073709.552");
    }
}

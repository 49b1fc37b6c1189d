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
    pub(super) fn whole(value: u64) -> Self {
        let mut number = Self::EMPTY;
        number.before(value);
        number
    }

    /// A whole number with thousands apart.
    pub(super) fn grouped(mut value: u64) -> Self {
        let mut number = Self::EMPTY;
        while value >= 1000 {
            number.places(value % 1000, 3);
            number.letter(b',');
            value /= 1000;
        }
        number.before(value);
        number
    }

    /// So many `units` as a decimal of the last of `decimals` places, rounded. Both are known where this is called.
    #[inline(always)]
    pub(super) fn fixed(value: u64, units: u64, decimals: usize) -> Self {
        let rounded = value / units + u64::from(value % units >= units.div_ceil(2));
        let mut number = Self::EMPTY;
        let unit = 10u64.pow(decimals as u32);
        number.places(rounded % unit, decimals);
        number.letter(b'.');
        number.before(rounded / unit);
        number
    }

    /// Puts as many digits before what is there as it takes.
    fn before(&mut self, mut value: u64) {
        for letter in self.letters[..self.first].iter_mut().rev() {
            *letter = b'0' + (value % 10) as u8;
            value /= 10;
            self.first -= 1;
            if value == 0 {
                return;
            }
        }
    }

    /// Puts so many digits before what is there.
    #[inline(always)]
    fn places(&mut self, mut value: u64, digits: usize) {
        let first = self.first - digits;
        for letter in self.letters[first..self.first].iter_mut().rev() {
            *letter = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.first = first;
    }

    fn letter(&mut self, letter: u8) {
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

//! Whole numbers and decimals as bytes of text.
//!
//! Rows may be many and come a hundred times a second: numbers are put down as the integers that they are, without a detour by
//! way of the exact decimals of a fraction, and where they are to stand. Each is written at the end of the letters given, which
//! begin with blanks; returned is where it starts.

/// Most letters that a number has, and more: all digits of one of 64 bits with commas between them are 26.
pub(super) const MOST: usize = 32;

#[inline]
pub(super) fn whole(value: u64, letters: &mut [u8]) -> usize {
    digits_before(value, letters.len(), letters)
}

/// A whole number with thousands apart.
#[inline]
pub(super) fn grouped(mut value: u64, letters: &mut [u8]) -> usize {
    let mut first = letters.len();
    while value >= 1000 {
        first = places_before(value % 1000, 3, first, letters) - 1;
        letters[first] = b',';
        value /= 1000;
    }
    digits_before(value, first, letters)
}

/// A decimal, given in units of the last of its places.
#[inline]
pub(super) fn decimal<const PLACES: usize>(value: u64, letters: &mut [u8]) -> usize {
    let unit = const { 10u64.pow(PLACES as u32) };
    let point = places_before(value % unit, PLACES, letters.len(), letters) - 1;
    letters[point] = b'.';
    digits_before(value / unit, point, letters)
}

/// How many units a value is, rounded.
#[inline]
pub(super) const fn in_units<const UNIT: u64>(value: u64) -> u64 {
    value / UNIT + (value % UNIT >= UNIT.div_ceil(2)) as u64
}

/// Writes a number behind what is there.
pub(super) fn append(into: &mut Vec<u8>, write: impl FnOnce(&mut [u8]) -> usize) {
    let mut letters = [b' '; MOST];
    let first = write(&mut letters);
    into.extend_from_slice(&letters[first..]);
}

/// As many digits as it takes.
#[inline]
fn digits_before(mut value: u64, end: usize, letters: &mut [u8]) -> usize {
    let mut first = end;
    loop {
        first -= 1;
        letters[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return first;
        }
    }
}

/// So many digits.
#[inline]
fn places_before(mut value: u64, places: usize, end: usize, letters: &mut [u8]) -> usize {
    for digit in letters[end - places..end].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    end - places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut [u8]) -> usize) -> String {
        let mut text = Vec::new();
        append(&mut text, write);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_what_the_library_makes_of_them() {
        for value in [
            0,
            7,
            10,
            99,
            100,
            999,
            1_000,
            12_345,
            999_999,
            1_000_000,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            assert_eq!(written(|into| whole(value, into)), value.to_string());
            assert_eq!(
                written(|into| grouped(value, into)),
                crate::format::count(value)
            );
            let seconds = value / 1_000_000_000;
            let rest = value % 1_000_000_000;
            assert_eq!(
                written(|into| decimal::<9>(value, into)),
                format!("{seconds}.{rest:09}")
            );
            assert_eq!(
                written(|into| decimal::<4>(value, into)),
                format!("{}.{:04}", value / 10_000, value % 10_000)
            );
        }
    }

    #[test]
    fn decimals_are_rounded() {
        let cases = [
            (0, "0.00"),
            (49, "0.00"),
            (50, "0.01"),
            (149, "0.01"),
            (9_949, "0.99"),
            (9_950, "1.00"),
        ];
        for (value, text) in cases {
            assert_eq!(
                written(|into| decimal::<2>(in_units::<100>(value), into)),
                text
            );
        }
        assert_eq!(
            written(|into| decimal::<3>(in_units::<1_000>(u64::MAX), into)),
            "18446744073709.552"
        );
    }
}

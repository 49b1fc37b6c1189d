//! Formats of numbers, sizes and times, the same in all texts, tables and charts.

/// Formats a number with about `digits` significant digits. Numbers below a million have no exponent, and significant
/// trailing zeros are kept.
#[must_use]
pub fn number(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&magnitude) {
        return format!("{value:.*e}", digits.saturating_sub(1));
    }
    let decimals = usize::try_from(digits as i32 - 1 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if decimals == 0 { grouped(&text) } else { text }
}

fn grouped(integer: &str) -> String {
    let digits = integer.len() - usize::from(integer.starts_with('-'));
    let mut text = String::with_capacity(integer.len() + digits / 3);
    let (first, rest) = integer.split_at(integer.len() - digits + (digits + 2) % 3 + 1);
    text.push_str(first);
    for place in (0..rest.len()).step_by(3) {
        text.push(',');
        text.push_str(&rest[place..place + 3]);
    }
    text
}

/// Formats an integer with separated thousands.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Formats a large number with a decimal prefix, as in `1.78 T` or `35 G`.
pub(crate) fn prefixed(value: f64) -> String {
    let (scale, prefix) = match value.abs() {
        v if v >= 1e12 => (1e12, "T"),
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}", number(value / scale, 3))
        .trim_end()
        .to_owned()
}

/// Formats a size in bytes with a binary unit, as usual for caches.
pub(crate) fn bytes(value: f64) -> String {
    let (scale, unit) = match value {
        v if v >= f64::from(1 << 30) => (f64::from(1 << 30), "GiB"),
        v if v >= f64::from(1 << 20) => (f64::from(1 << 20), "MiB"),
        v if v >= 1024.0 => (1024.0, "KiB"),
        _ => (1.0, "B"),
    };
    let scaled = value / scale;
    let text = if (scaled - scaled.round()).abs() < 0.005 {
        format!("{scaled:.0}")
    } else {
        number(scaled, 3)
    };
    format!("{text} {unit}")
}

/// Formats a time in seconds as s, ms or µs.
#[must_use]
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v >= 1.0 || v == 0.0 => format!("{} s", number(value, 4)),
        v if v >= 1e-3 => format!("{} ms", number(value * 1e3, 3)),
        _ => format!("{} µs", number(value * 1e6, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_significant_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1.00"),
            (12345.6, "12,346"),
            (0.01234, "0.0123"),
            (-2.5, "-2.50"),
            (1.5e7, "1.50e7"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value, 3), text);
        }
        assert_eq!(number(f64::NAN, 3), "–");
        assert_eq!(
            [0, 12, 123, 1_234, 123_456, 1_234_567].map(count),
            ["0", "12", "123", "1,234", "123,456", "1,234,567"]
        );
        assert_eq!(number(-123_456.0, 3), "-123,456");
    }

    #[test]
    fn sizes_and_times_have_their_unit() {
        assert_eq!(bytes(30_720.0 * 1024.0), "30 MiB");
        assert_eq!(bytes(524_288.0), "512 KiB");
        assert_eq!(seconds(0.0005), "500 µs");
        assert_eq!(prefixed(1.779e12), "1.78 T");
    }
}

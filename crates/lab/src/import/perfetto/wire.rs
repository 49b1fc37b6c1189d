//! Fields of protobuf messages, which are read one at a time without a copy.

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'a> {
    Number(u64),
    /// Text, bytes, a message, or a packed column of numbers.
    Bytes(&'a [u8]),
    /// Number of fixed size, which no field has that is used.
    Fixed,
}

/// Iterator over the fields of a message. It ends behind the first error.
#[derive(Clone, Debug)]
pub(crate) struct WireFields<'a> {
    rest: &'a [u8],
}

/// Returns the fields of a message, each with its number.
pub fn fields(message: &[u8]) -> WireFields<'_> {
    WireFields { rest: message }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u32, WireValue<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut rest = self.rest;
        let field = field(&mut rest);
        self.rest = if field.is_some() { rest } else { &[] };
        Some(field.ok_or_else(|| "a field of it is damaged, or its end is missing".into()))
    }
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u32, WireValue<'a>)> {
    let key = varint(rest)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
    let value = match key & 7 {
        0 => WireValue::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| WireValue::Fixed)?,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            WireValue::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| WireValue::Fixed)?,
        _ => return None,
    };
    Some((number, value))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

/// Reads a number of up to 64 bits, seven bits a byte, the lowest first.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_until_one_is_damaged() {
        let message = [
            0x08, 0x96, 0x01, 0x12, 0x02, b'a', b'b', 0x1d, 0, 0, 0, 0, 0x0b, 0x08,
        ];
        let read: Vec<_> = fields(&message).collect();
        let [number, bytes, fixed, damaged] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!(number, &Ok((1, WireValue::Number(150))));
        assert_eq!(bytes, &Ok((2, WireValue::Bytes(b"ab"))));
        assert_eq!(fixed, &Ok((3, WireValue::Fixed)));
        assert!(damaged.is_err());
        for damaged in [&[0x0a, 5, 1][..], &[0x0a], &[0xff; 12], &[0x00, 1]] {
            assert!(fields(damaged).any(|field| field.is_err()), "{damaged:?}");
        }
    }
}

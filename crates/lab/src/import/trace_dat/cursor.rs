//! Cursor over the bytes of a file, with the byte order of the machine that wrote the file.

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Returns the unsigned number of up to eight bytes that begins at `at`; `None` if the bytes end before.
    pub fn number(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        (size <= 8).then(|| match self {
            Self::Little => bytes.iter().rev().fold(0, append),
            Self::Big => bytes.iter().fold(0, append),
        })
    }
}

/// Position in a file, from which numbers and texts are read in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCursor<'a> {
    bytes: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl<'a> FileCursor<'a> {
    /// Creates a cursor at an offset of a file.
    pub fn new(bytes: &'a [u8], at: u64, order: ByteOrder) -> Result<Self, String> {
        let at = usize::try_from(at).ok().filter(|at| *at <= bytes.len());
        let at = at.ok_or("one of its sections begins behind its end")?;
        Ok(Self { bytes, at, order })
    }

    /// Returns the offset of the next byte.
    pub fn at(self) -> u64 {
        self.at as u64
    }

    pub fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes.get(self.at..self.at.checked_add(length)?));
        let taken = taken.ok_or_else(|| format!("it ends within {length} bytes at {}", self.at))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn number(&mut self, size: u64) -> Result<u64, String> {
        let bytes = self.take(size)?;
        Ok(self.order.number(bytes, 0, bytes.len()).unwrap_or(0))
    }

    pub fn byte(&mut self) -> Result<u8, String> {
        Ok(self.number(1)? as u8)
    }

    pub fn short(&mut self) -> Result<u16, String> {
        Ok(self.number(2)? as u16)
    }

    pub fn word(&mut self) -> Result<u32, String> {
        Ok(self.number(4)? as u32)
    }

    pub fn long(&mut self) -> Result<u64, String> {
        self.number(8)
    }

    /// Reads a text that ends with a zero byte.
    pub fn text(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| format!("a text at byte {} has no end", self.at))?;
        let text = String::from_utf8_lossy(&rest[..end]).into_owned();
        self.at += end + 1;
        Ok(text)
    }

    /// Reads a text behind its length of 64 bits.
    pub(crate) fn long_text(&mut self) -> Result<String, String> {
        let length = self.long()?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    pub fn rest(self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
}

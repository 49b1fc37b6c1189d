//! Names of files and words of commands as text, even where their bytes are no UTF-8: Linux takes any bytes but NUL.
//!
//! Input: bytes from the command line. Output: text that workloads, records and messages hold, and the bytes again where a file is
//! opened or a program started. A byte that is part of no letter becomes one of the last 128 code points for private use; such a
//! letter that was there already has its bytes written so, so that nothing is lost or confused.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The letter of byte 0.
const FIRST: u32 = 0x10_ff00;

/// The text that stands for a name.
#[must_use]
pub fn escaped(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match byte(letter) {
                None => text.push(letter),
                Some(_) => text.extend(letter.to_string().bytes().map(letter_of)),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(letter_of));
    }
    text
}

/// The name that a text stands for.
#[must_use]
pub fn original(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match byte(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(letter.to_string().bytes()),
        }
    }
    OsString::from_vec(bytes)
}

/// The path that a path stands for.
#[must_use]
pub fn path(escaped: &Path) -> Cow<'_, Path> {
    match escaped.to_str() {
        Some(text) if text.chars().any(|letter| byte(letter).is_some()) => {
            Cow::Owned(PathBuf::from(original(text)))
        }
        _ => Cow::Borrowed(escaped),
    }
}

/// True for `/dev/fd/N` and `/proc/self/fd/N`: a descriptor of this process. The text counts, as `/dev/fd/..` leads anywhere.
pub(crate) fn is_descriptor(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let number = ["/dev/fd/", "/proc/self/fd/"]
        .iter()
        .find_map(|folder| path.strip_prefix(folder.as_bytes()));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

fn letter_of(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte(letter: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(letter).checked_sub(FIRST)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_come_back() {
        let names: [&[u8]; 6] = [
            b"plain.toml",
            b"",
            "größe 漢".as_bytes(),
            b"a\x9bb/\xff\xfe",
            b"\xc3",
            // The letter for byte 0x9b, as UTF-8.
            b"\xf4\x8f\xbe\x9b",
        ];
        for name in names {
            let name = OsStr::from_bytes(name);
            let text = escaped(name);
            assert_eq!(original(&text), name, "{text:?}");
            assert_eq!(&*path(Path::new(&text)), Path::new(name));
            assert_eq!(
                name.to_str().is_some_and(|n| n == text),
                !text.chars().any(|c| byte(c).is_some())
            );
        }
    }

    #[test]
    fn only_a_number_is_a_descriptor() {
        let is = |path: &str| is_descriptor(Path::new(path));
        assert!(is("/dev/fd/0") && is("/proc/self/fd/63"));
        for path in [
            "/dev/fd",
            "/dev/fd/",
            "/dev/fd/3/x",
            "/dev/fd/../cwd/pipe",
            "/proc/self/fd/3/../../root/pipe",
            "/proc/self/fd/+3",
            "/proc/1/fd/3",
        ] {
            assert!(!is(path), "{path}");
        }
    }
}

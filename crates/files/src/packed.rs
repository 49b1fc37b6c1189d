//! Compressed files and archives, for messages about files that must be unpacked first.
//!
//! Input: the first bytes of a file. Output: a sentence for the message, if they are of a known kind.

const KINDS: [(&[u8], &str); 6] = [
    (
        b"\x1f\x8b",
        "it looks like gzip: unpack it first (`gunzip`)",
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "it looks like zstd: unpack it first (`zstd -d`)",
    ),
    (b"\xfd7zXZ", "it looks like xz: unpack it first (`xz -d`)"),
    (b"BZh", "it looks like bzip2: unpack it first (`bunzip2`)"),
    (
        b"\x04\x22\x4d\x18",
        "it looks like lz4: unpack it first (`lz4 -d`)",
    ),
    (
        b"PK\x03\x04",
        "it looks like a ZIP archive: unpack it first (`unzip`)",
    ),
];

/// Returns a sentence about a compressed file; `None` for other files.
#[must_use]
pub fn looks_like(head: &[u8]) -> Option<&'static str> {
    let found = KINDS.iter().find(|(magic, _)| head.starts_with(magic));
    found.map(|(_, sentence)| *sentence)
}

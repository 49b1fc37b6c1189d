//! Detection of unsupported file formats, with instructions for converting them.
//!
//! Input: the head of a file. Output: a sentence for the error message, if the format is known.

use countersteer_files::packed;

/// Unsupported file format that is identified by its first bytes.
struct OtherFormat {
    magic: &'static [u8],
    sentence: &'static str,
}

const KINDS: [OtherFormat; 6] = [
    kind(
        b"\xc1\x1f\xfc\xc1",
        "it looks like a CTF trace of LTTng: `babeltrace2` prints it, and ftrace records what is read",
    ),
    kind(
        b"PAR1",
        "it looks like a table of Parquet; a record's folder is for `steer report` and `replay`",
    ),
    kind(
        b"\x7fELF",
        "it looks like a program: `steer profile -- PROGRAM` records it",
    ),
    kind(
        b"events: ",
        "it looks like output of cachegrind, which has no times; `steer profile check --cachegrind` compares profiles with it",
    ),
    kind(
        b"desc: ",
        "it looks like output of cachegrind, which has no times; `steer profile check --cachegrind` compares profiles with it",
    ),
    kind(
        b"<?xml",
        "it looks like XML, as hwloc's `lstopo` writes of machines: `steer machine import` reads it",
    ),
];

const fn kind(magic: &'static [u8], sentence: &'static str) -> OtherFormat {
    OtherFormat { magic, sentence }
}

/// Returns a sentence about a file of a known unsupported format; `None` for other files.
pub fn looks_like(bytes: &[u8]) -> Option<&'static str> {
    let found = KINDS.iter().find(|kind| bytes.starts_with(kind.magic));
    found
        .map(|kind| kind.sentence)
        .or_else(|| packed::looks_like(bytes))
        .or_else(|| by_content(bytes))
}

fn by_content(bytes: &[u8]) -> Option<&'static str> {
    if bytes.is_empty() {
        return Some("it is empty");
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Some("it begins with zeros only");
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(1 << 16)]);
    let has = |word: &str| text.contains(word);
    if has("\"traceEvents\"") {
        Some(
            "it looks like JSON of Chrome's tracing; Perfetto's own format is read (`traceconv` cannot convert JSON)",
        )
    } else if has("\"lscpu\"") {
        Some("it looks like `lscpu -J`, which describes a machine: `steer machine import` reads it")
    } else if has("\"EventName\"") || has("\"EventCode\"") {
        Some(
            "it looks like a list of perf's events: `--event-lists FOLDER` of `steer stat` takes these",
        )
    } else if has("[[program]]") {
        Some("it is a workload already: `steer sim -w FILE` takes it")
    } else if has("sched:sched_switch") || has("sched_wakeup") {
        Some(
            "it looks like text of a scheduler trace without sched_switch, which shows the running threads",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_tools_are_named() {
        let cases: [(&[u8], &str); 8] = [
            (b"\x1f\x8b\x08\0", "gunzip"),
            (b"{\"lscpu\": [{\"field\": \"Architecture:\"}]}", "lscpu -J"),
            (
                b"[{\"EventName\": \"A\", \"EventCode\": \"0x1\"}]",
                "--event-lists",
            ),
            (b"<?xml version=\"1.0\"?>\n<topology>", "lstopo"),
            (b"desc: I1 cache: 32768 B\n", "cachegrind"),
            (b"{\"traceEvents\": []}", "Chrome"),
            (&[0; 100], "zeros"),
            (b"", "empty"),
        ];
        for (bytes, word) in cases {
            let said = looks_like(bytes).unwrap_or_default();
            assert!(said.contains(word), "{}: {said}", bytes.escape_ascii());
        }
        assert_eq!(looks_like(b"nothing"), None);
    }
}

//! Tests of trace files: round trips, reports of damage, and the meaning of imported traces.

#![allow(clippy::unwrap_used)] // a helper that fails has failed its test

use std::io::Cursor;

use countersteer_cache::curve::{AccessSide, Curve};
use countersteer_cache::private::AccessKind;
use countersteer_cache::trace::{
    Header, SCHEMA, TraceBlocks, TraceError, TraceFile, TraceFormat, TraceWriter, Trailer, import,
};
use countersteer_cache::tracer::ThreadTracer;
use countersteer_cache::wire::{BlockHead, Decoder, ENDS, WireEvent, WireKind};
use countersteer_fuzz::storm;

fn header() -> Header {
    Header {
        schema: SCHEMA.into(),
        name: "test".into(),
        detail: "steer trace record -- test".into(),
        filter_sets: 0,
        fetches: true,
    }
}

/// A trace of two threads, with its blocks.
fn example() -> (Vec<u8>, Vec<(BlockHead, Vec<u32>)>) {
    let mut blocks = Vec::new();
    let mut writer = TraceWriter::new("memory", Vec::new(), &header()).unwrap();
    for thread in [1, 2, 1] {
        let mut tracer = ThreadTracer::new(thread, 7, 0);
        for n in 0..50 {
            tracer.instructions(3);
            tracer.fetch(n, n);
            tracer.data(1000 + n * 7, 1000 + n * 7 + n % 2, n % 3 == 0);
        }
        tracer.hand_on(ENDS, 150, |head, words| {
            writer.block(head, words).unwrap();
            blocks.push((head, words.to_vec()));
        });
    }
    (writer.finish(Trailer::default()).unwrap(), blocks)
}

fn all(bytes: &[u8]) -> Result<Vec<(BlockHead, Vec<u32>)>, TraceError> {
    let mut blocks = TraceBlocks::new("memory", bytes)?;
    let mut found = Vec::new();
    while let Some(block) = blocks.next_block()? {
        found.push(block);
    }
    Ok(found)
}

fn events(words: &[u32]) -> Vec<WireEvent> {
    let mut decoder = Decoder::new(words);
    std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
}

#[test]
fn a_trace_reads_back_in_one_pass_and_by_its_index() {
    let (bytes, written) = example();
    assert_eq!(all(&bytes).unwrap(), written);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.trace");
    std::fs::write(&path, &bytes).unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!(file.trailer().totals.instructions, 450);
    assert_eq!(file.trailer().totals.threads, 2);
    assert!(file.trailer().partial.is_none());
    for (entry, (head, words)) in file.entries().iter().zip(&written) {
        assert_eq!(entry.head, *head);
        assert_eq!(file.words(entry).unwrap(), *words);
    }
}

#[test]
fn a_trace_whose_writer_was_killed_is_as_good_as_far_as_it_goes() {
    let (bytes, written) = example();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.trace");
    let end = bytes.len() - 900;
    std::fs::write(&path, &bytes[..end]).unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert!(file.trailer().partial.as_ref().unwrap().contains("middle"));
    assert!((1..3).contains(&file.entries().len()));
    assert_eq!(file.words(&file.entries()[0]).unwrap(), written[0].1);
}

#[test]
fn damage_is_reported() {
    let (mut bytes, _) = example();
    assert!(matches!(all(b"elephant"), Err(TraceError::Foreign { .. })));
    assert!(matches!(all(&bytes[..30]), Err(TraceError::Damaged { .. })));
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let error = all(&bytes).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}

fn imported_file(format: TraceFormat, input: &[u8]) -> Result<Vec<u8>, TraceError> {
    let mut writer = TraceWriter::new("memory", Vec::new(), &header())?;
    import("input", format, Cursor::new(input), 0, &mut writer)?;
    writer.finish(Trailer::default())
}

fn imported(format: TraceFormat, input: &[u8]) -> Result<Vec<WireEvent>, TraceError> {
    let bytes = imported_file(format, input)?;
    Ok(all(&bytes)?
        .iter()
        .flat_map(|(_, words)| events(words))
        .collect())
}

fn accesses(events: &[WireEvent]) -> Vec<(AccessKind, u64)> {
    let access = |event: &WireEvent| match event.what {
        WireKind::Access(access) => (access, event.line),
        WireKind::Mispredicted => unreachable!(),
    };
    events.iter().map(access).collect()
}

const LACKEY: &[u8] =
    b"==1== Lackey\nI  04000d20,3\n S 1ffefff9f8,8\nI  04000d3e,5\n M 1ffefff9fe,4\n";
const DRMEMTRACE: &[u8] = b"Output format:\n\
           1           0:     1310715 <marker: version 3>\n\
          12           1:     1310715 ifetch       3 byte(s) @ 0x00000000000011d0 48 89 e7             mov    %rsp, %rdi\n\
          13           1:     1310716 read         8 byte(s) @ 0x0000000000002000 by PC 0x00000000000011d0\n\
          14           1:     1310715 write        8 byte(s) @ 0x0000000000003000 by PC 0x00000000000011d0\n";

fn champsim() -> Vec<u8> {
    let words: [u64; 8] = [0x40_1000, 1, 0x8000, 0, 0x9000, 0, 0, 0];
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn other_tools_traces_mean_what_they_say() {
    let found = imported(TraceFormat::Lackey, LACKEY).unwrap();
    let expected = [
        (AccessKind::Fetch, 0x04000d20 >> 6),
        (AccessKind::Store, 0x1ffefff9f8 >> 6),
        (AccessKind::Fetch, 0x04000d3e >> 6),
        (AccessKind::Fetch, 0x04000d40 >> 6),
        (AccessKind::Load, 0x1ffefff9fe >> 6),
        (AccessKind::Load, 0x1ffefffa00 >> 6),
        (AccessKind::Store, 0x1ffefff9fe >> 6),
        (AccessKind::Store, 0x1ffefffa00 >> 6),
    ];
    assert_eq!(accesses(&found), expected);
    assert_eq!(found.iter().map(|e| e.gap).sum::<u32>(), 2);
    let found = imported(TraceFormat::Drmemtrace, DRMEMTRACE).unwrap();
    let expected = [
        (AccessKind::Fetch, 0x47),
        (AccessKind::Store, 0xc0),
        (AccessKind::Load, 0x80),
    ];
    assert_eq!(accesses(&found), expected, "thread by thread");
    let found = imported(TraceFormat::ChampSim, &champsim()).unwrap();
    let expected = [
        (AccessKind::Fetch, 0x10040),
        (AccessKind::Load, 0x240),
        (AccessKind::Store, 0x200),
    ];
    assert_eq!(accesses(&found), expected);
}

#[test]
fn threads_of_drmemtrace_may_have_their_workload_before_them() {
    let line = |thread: &str, address: &str| {
        format!("9 1: {thread} ifetch 3 byte(s) @ 0x{address} 48 89 e7 mov %rsp, %rdi\n")
    };
    let heads = |threads: [&str; 2]| {
        let input = line(threads[0], "00007fef6f68b1d0") + &line(threads[1], "1000");
        let mut writer = TraceWriter::new("memory", Vec::new(), &header()).unwrap();
        let input = Cursor::new(input);
        import("input", TraceFormat::Drmemtrace, input, 0, &mut writer).unwrap();
        let bytes = writer.finish(Trailer::default()).unwrap();
        let blocks = all(&bytes).unwrap();
        let heads = blocks.iter().map(|(head, _)| (head.thread, head.pid));
        heads.collect::<Vec<_>>()
    };
    assert_eq!(heads(["W0.T1310715", "W0.T1310716"]), [(1, 0), (2, 0)]);
    assert_eq!(heads(["W0.T1310715", "W1.T1310715"]), [(1, 0), (2, 1)]);
    for before in ["1310715", "T1310715"] {
        assert_eq!(heads([before, "1310716"]), [(1, 0), (2, 0)]);
    }
    let broken = line("W0.X1", "1000");
    assert!(imported(TraceFormat::Drmemtrace, broken.as_bytes()).is_err());
}

#[test]
fn processes_of_a_trace_have_address_spaces_of_their_own() {
    let footprint = |pids: [u32; 2]| {
        let mut curve = Curve::new(AccessSide::Data, Some(1.0), true);
        for (thread, pid) in (1..).zip(pids) {
            let mut tracer = ThreadTracer::new(thread, pid, 0);
            for line in 0..1000 {
                tracer.instructions(1);
                tracer.data(line, line, false);
            }
            tracer.hand_on(ENDS, 0, |head, words| curve.block(&head, words).unwrap());
        }
        (curve.footprint_lines().unwrap(), curve.misses(8 * 1024, 8))
    };
    assert_eq!(footprint([1, 2]), (2000.0, Some(2000)));
    assert_eq!(footprint([1, 1]), (1000.0, Some(1000)));
}

#[test]
fn what_is_not_of_the_format_is_refused_with_its_line() {
    let error = imported(TraceFormat::Lackey, b"I  04000d20,3\nhello\n")
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("input:2:"), "{error}");
    assert!(imported(TraceFormat::ChampSim, &champsim()[..60]).is_err());
    assert!(imported(TraceFormat::Drmemtrace, b"nothing\n").is_err());
}

#[test]
fn a_file_of_another_kind_is_named_with_what_to_do() {
    let binary: Vec<u8> = [
        (25_u16, 0_u16, 3_u64),
        (28, 9, 5),
        (22, 8, 77),
        (10, 4, 0x40_1000),
    ]
    .iter()
    .flat_map(|(kind, size, address)| {
        let head = [kind.to_le_bytes(), size.to_le_bytes()].concat();
        [head, address.to_le_bytes().to_vec()].concat()
    })
    .collect();
    let text = String::from_utf8_lossy(DRMEMTRACE).repeat(9);
    let own = imported_file(TraceFormat::Lackey, LACKEY).unwrap();
    let files: [(&[u8], &str); 9] = [
        (b"\x1f\x8b\x08\x00\x00", "gunzip"),
        (b"\xfd7zXZ\x00\x00", "xz -d"),
        (b"PK\x03\x04\x14\x00", "unzip"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd -d"),
        (b"\x04\x22\x4d\x18\x64", "lz4 -d"),
        (b"PERFILE2\x68\x00", "steer workload import"),
        (b"\x7fELF\x02\x01", "steer trace record"),
        (&own, "steer trace info"),
        (&binary, "-tool view"),
    ];
    for (name, format) in TraceFormat::ALL {
        for (bytes, word) in files {
            let error = imported(format, bytes).unwrap_err().to_string();
            assert!(
                error.starts_with("input is in another format") && error.contains(word),
                "{name}: {error}"
            );
        }
    }
    for (format, bytes, word) in [
        (
            TraceFormat::ChampSim,
            text.as_bytes(),
            "--format drmemtrace",
        ),
        (TraceFormat::Lackey, &champsim(), "--format champsim"),
        (TraceFormat::Drmemtrace, &champsim(), "--format champsim"),
    ] {
        let error = imported(format, bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn no_trace_makes_a_reader_fall() {
    let (bytes, _) = example();
    storm("trace", &[&bytes], 1.0, |input| {
        if let Ok(blocks) = all(input) {
            for (_, words) in blocks {
                let mut decoder = Decoder::new(&words);
                while let Ok(Some(_)) = decoder.next_event() {}
            }
        }
    });
    let words: Vec<u8> = example().1[0]
        .1
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    storm("trace events", &[&words], 1.0, |input| {
        let words: Vec<u32> = input
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .collect();
        let mut decoder = Decoder::new(&words);
        while let Ok(Some(_)) = decoder.next_event() {}
    });
    let champsim = champsim();
    for (format, example) in [
        (TraceFormat::Lackey, LACKEY),
        (TraceFormat::Drmemtrace, DRMEMTRACE),
        (TraceFormat::ChampSim, &champsim),
    ] {
        storm("trace import", &[example], 0.3, |input| {
            drop(imported(format, input))
        });
    }
}

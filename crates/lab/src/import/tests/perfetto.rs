//! Traces as Perfetto writes them: in both forms, packed, and of several machines.

use miniz_oxide::deflate::compress_to_vec_zlib;
use prost::Message;

use super::super::perfetto::build::{BuiltTrace, compact, full, packed};
use super::super::perfetto::{build, read};
use super::*;

fn all() -> impl Iterator<Item = (u64, i32, char, i32)> {
    let first = (0, 0, 'R', 7);
    let last = (END_MS, 7, 'S', 0);
    std::iter::once(first).chain(SWITCHES).chain([last])
}

fn ns(ms: u64) -> u64 {
    5_000_000_000 + ms * 1_000_000
}

fn full_trace() -> BuiltTrace {
    let switches = all().map(|(at, prev, s, next)| {
        let prev = (prev, name(prev), state_of(s));
        (ns(at), prev, (next, name(next)))
    });
    full(switches, WAKES_MS.map(|at| (ns(at), 7)))
}

fn compact_trace() -> BuiltTrace {
    let switches = all().map(|(at, _, s, next)| (ns(at), state_of(s), next, name(next)));
    compact(switches, WAKES_MS.map(|at| (ns(at), 7)))
}

fn zlib(trace: &BuiltTrace) -> Vec<u8> {
    compress_to_vec_zlib(&trace.encode_to_vec(), 6)
}

/// Examples for readers of changed bytes.
pub fn examples() -> [Vec<u8>; 2] {
    let packed = packed(Some(zlib(&full_trace())), None);
    [compact_trace().encode_to_vec(), packed.encode_to_vec()]
}

fn refused(bytes: Vec<u8>) -> String {
    read("x", bytes).unwrap_err().to_string()
}

#[test]
fn both_forms_of_perfetto_give_what_ftrace_does() {
    check(&tasks("perfetto", &full_trace().encode_to_vec()), "full");
    let compact = compact_trace().encode_to_vec();
    check(&tasks("perfetto", &compact), "compact");
}

#[test]
fn packed_packets_of_perfetto_are_read() {
    let by_zlib = packed(Some(zlib(&full_trace())), None);
    check(&tasks("perfetto", &by_zlib.encode_to_vec()), "zlib");
    let plain = compact_trace().encode_to_vec();
    let by_zstd = packed(None, Some(zstd::stream::encode_all(&*plain, 1).unwrap()));
    check(&tasks("perfetto", &by_zstd.encode_to_vec()), "zstd");
    let twice = refused(packed(Some(zlib(&by_zlib)), None).encode_to_vec());
    assert!(twice.contains("within packed packets"), "{twice}");
    let damaged = refused(packed(Some(b"no zlib".to_vec()), None).encode_to_vec());
    assert!(damaged.contains("zlib data is damaged"), "{damaged}");
}

#[test]
fn the_machine_with_most_switches_is_imported() {
    let of_machine = |id: Option<u32>, mut trace: BuiltTrace| {
        trace.packet[0].machine_id = id;
        trace.encode_to_vec()
    };
    // A guest with threads of the same ids.
    let guest = full([(ns(3), (7, "guest", 0), (8, "other"))].into_iter(), []);
    for (most, fewest) in [(None, 5), (Some(9), 0)] {
        let few = of_machine(Some(fewest), guest.clone());
        let many = of_machine(most, full_trace());
        for bytes in [[&*few, &many].concat(), [&*many, &few].concat()] {
            let read = tasks("perfetto", &bytes);
            check(&read, "two machines");
            let [machines, not_kept] = &read.warnings[..] else {
                panic!("{:?}", read.warnings);
            };
            let wanted = format!("imported, which has id {}", most.unwrap_or(0));
            assert!(machines.contains("2 machines"), "{machines}");
            assert!(machines.ends_with(&wanted), "{machines}");
            let wanted = format!("not kept: 1 switches of machine {fewest}");
            assert_eq!(*not_kept, wanted);
        }
    }
}

#[test]
fn parts_of_perfetto_that_are_not_read_are_counted() {
    let others = build::others().encode_to_vec();
    let read = tasks("perfetto", &[full_trace().encode_to_vec(), others].concat());
    check(&read, "others");
    let wanted = "not kept: 1 x clock_snapshot, 1 x field of packets from 2000 on, 2 x cpu_idle";
    assert_eq!(read.warnings, [wanted]);
}

#[test]
fn no_packet_of_perfetto_takes_much_more_memory_than_it_has_bytes() {
    let packet = (16 << 20) + 1;
    let mut bytes = vec![0x0a];
    prost::encode_length_delimiter(packet, &mut bytes).unwrap();
    bytes.resize(bytes.len() + packet, 0);
    let large = refused(bytes);
    assert!(
        large.contains("a packet of it has 16777217 bytes"),
        "{large}"
    );
    let mut uneven = compact([(1, 0, 7, "a"), (2, 1, 8, "b")].into_iter(), []);
    build::remove_states(&mut uneven);
    let uneven = refused(uneven.encode_to_vec());
    assert!(uneven.contains("different lengths"), "{uneven}");
}

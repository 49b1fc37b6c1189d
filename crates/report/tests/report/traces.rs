//! Tests of traces: they have the structure that Perfetto requires.

use countersteer_report::perfetto::proto::event_type::{COUNTER, INSTANT, SLICE_BEGIN, SLICE_END};
use countersteer_report::perfetto::{decode, export};
use countersteer_report::record::Detail;

use crate::synthetic::{self, HYBRID};

#[test]
fn every_event_lies_on_a_described_track_in_order_and_slices_pair_up() {
    let record = synthetic::record(HYBRID, "fastest-first", 10, 1, Detail::Everything);
    let bytes = export(&record);
    assert!(bytes == export(&record));
    let tracks = decode(&bytes).unwrap();
    let mut seen = std::collections::BTreeMap::new();
    for (uuid, packets) in tracks.iter().filter(|(uuid, _)| **uuid != 0) {
        assert_eq!(
            packets
                .iter()
                .filter(|p| p.track_descriptor.is_some())
                .count(),
            1,
            "track {uuid}"
        );
        assert!(
            packets[0].track_descriptor.is_some(),
            "a track is described before its events"
        );
        let mut open = 0;
        let mut last = 0;
        for packet in &packets[1..] {
            let event = packet.track_event.as_ref().unwrap();
            let kind = event.r#type.unwrap();
            *seen.entry(kind).or_insert(0) += 1;
            let at = packet.timestamp.unwrap();
            assert!(at >= last);
            last = at;
            open += i32::from(kind == SLICE_BEGIN) - i32::from(kind == SLICE_END);
            assert!((0..=1).contains(&open), "a CPU runs one thread at a time");
            assert_eq!(kind == SLICE_BEGIN, event.name_iid.is_some());
            assert_eq!(kind == COUNTER, event.double_counter_value.is_some());
        }
        assert_eq!(open, 0);
    }
    assert_eq!(seen[&SLICE_BEGIN], seen[&SLICE_END]);
    assert!(
        seen[&INSTANT] > 100 && seen[&COUNTER] > 1000 && seen[&SLICE_BEGIN] > 100,
        "{seen:?}"
    );
}

#[test]
fn slice_names_are_interned_before_they_are_used() {
    let record = synthetic::record(HYBRID, "linux", 10, 1, Detail::Everything);
    let tracks = decode(&export(&record)).unwrap();
    let names: Vec<_> = tracks[&0]
        .iter()
        .filter_map(|p| p.interned_data.as_ref())
        .flat_map(|d| &d.event_names)
        .collect();
    assert_eq!(names.len(), 10);
    assert_eq!(names[0].name.as_deref(), Some("519.lbm_r"));
}

#[test]
fn what_was_counted_is_counter_tracks() {
    let tracks = decode(&export(&synthetic::counted())).unwrap();
    let described: std::collections::BTreeMap<String, usize> = tracks
        .values()
        .filter_map(|packets| {
            let track = packets[0].track_descriptor.as_ref()?;
            let is_counter = track.counter.is_some();
            is_counter.then(|| (track.name.clone().unwrap(), packets.len() - 1))
        })
        .collect();
    assert_eq!(described["<sorter> (42) llc_misses on cpu_atom"], 5);
    assert_eq!(described["package-0 energy"], 10);
    assert_eq!(described.len(), 7, "{described:?}");
}

//! Parsing of the records of a ring buffer.
//!
//! Input: one record as the kernel wrote it for the sample type of [`super::sys`]. Output: a [`RingRecord`]. Unknown or
//! truncated records become [`RingRecord::Other`]. The crate `linux-perf-event-reader` parses all but the counts of groups.

use byteorder::{ByteOrder, NativeEndian};
use linux_perf_event_reader::{
    BranchSampleFormat, CommOrExecRecord, CommonData, Endianness, ForkOrExitRecord, LostRecord,
    PerfEventHeader, RawData, ReadFormat, RecordIdParseInfo, RecordParseInfo, RecordType,
    SampleFormat,
};

use super::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingRecord<'a> {
    /// A thread or process was created.
    Fork {
        pid: u32,
        tid: u32,
        parent: u32,
        at: u64,
    },
    Exit {
        pid: u32,
        tid: u32,
        at: u64,
    },
    /// A thread was given a name, possibly by an `exec`.
    Comm {
        tid: u32,
        name: &'a [u8],
        exec: bool,
        at: u64,
    },
    /// Final counts of a thread, for the group to which the event `id` belongs.
    Last {
        pid: u32,
        tid: u32,
        id: u64,
        at: u64,
        counts: GroupCounts<'a>,
    },
    /// Counts of a thread up to now, for the group to which the event `id` belongs.
    Sample {
        pid: u32,
        tid: u32,
        id: u64,
        at: u64,
        counts: GroupCounts<'a>,
    },
    Lost {
        records: u64,
    },
    Other,
}

/// Counts of a group inside a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupCounts<'a> {
    pub(crate) enabled: u64,
    pub(crate) running: u64,
    /// Bytes of the pairs of value and identifier.
    pairs: &'a [u8],
}

impl GroupCounts<'_> {
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> + '_ {
        self.pairs.chunks_exact(16).map(NativeEndian::read_u64)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).map(NativeEndian::read_u64)
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(NativeEndian::read_u32)
}

/// Format of the records, for the crate that parses them.
const FORMAT: RecordParseInfo = RecordParseInfo {
    endian: Endianness::NATIVE,
    sample_format: SampleFormat::from_bits_truncate(sys::SAMPLE_TYPE),
    branch_sample_format: BranchSampleFormat::empty(),
    read_format: ReadFormat::from_bits_truncate(sys::READ_FORMAT),
    common_data_offset_from_end: Some(TRAILER as u8),
    sample_regs_user: 0,
    user_regs_count: 0,
    sample_regs_intr: 0,
    intr_regs_count: 0,
    id_parse_info: RecordIdParseInfo {
        nonsample_record_id_offset_from_end: Some(8),
        sample_record_id_offset_from_start: Some(0),
    },
    nonsample_record_time_offset_from_end: Some(24),
    sample_record_time_offset_from_start: Some(16),
};

/// Number of bytes of PID, TID, time, CPU and identifier, which begin a sample and end every other record.
const TRAILER: usize = 32;

pub(crate) fn parse(bytes: &[u8]) -> RingRecord<'_> {
    parsed(bytes).unwrap_or(RingRecord::Other)
}

fn parsed(mut bytes: &[u8]) -> Option<RingRecord<'_>> {
    let header = PerfEventHeader::parse::<_, NativeEndian>(&mut bytes).ok()?;
    match RecordType(header.type_) {
        RecordType::SAMPLE => sample(bytes),
        RecordType::LOST => {
            let lost = LostRecord::parse::<NativeEndian>(bytes.into()).ok()?;
            let records = lost.count;
            Some(RingRecord::Lost { records })
        }
        kind => with_trailer(kind, header.misc, bytes),
    }
}

fn sample(body: &[u8]) -> Option<RingRecord<'_>> {
    let common = CommonData::parse_sample_impl::<NativeEndian>(body.into(), &FORMAT).ok()?;
    Some(RingRecord::Sample {
        pid: common.pid? as u32,
        tid: common.tid? as u32,
        id: common.id?,
        at: common.timestamp?,
        counts: counts(body.get(TRAILER..)?)?,
    })
}

fn with_trailer(kind: RecordType, misc: u16, body: &[u8]) -> Option<RingRecord<'_>> {
    let own = body.get(..body.len().checked_sub(TRAILER)?)?;
    let common = CommonData::parse_nonsample_impl::<NativeEndian>(body.into(), &FORMAT).ok()?;
    let at = common.timestamp?;
    match kind {
        RecordType::FORK | RecordType::EXIT => {
            let task = ForkOrExitRecord::parse::<NativeEndian>(own.into()).ok()?;
            let (pid, tid, parent) = (task.pid as u32, task.tid as u32, task.ptid as u32);
            Some(if kind == RecordType::EXIT {
                RingRecord::Exit { pid, tid, at }
            } else {
                RingRecord::Fork {
                    pid,
                    tid,
                    parent,
                    at,
                }
            })
        }
        RecordType::COMM => {
            let comm = CommOrExecRecord::parse::<NativeEndian>(own.into(), misc).ok()?;
            let RawData::Single(name) = comm.name else {
                return None;
            };
            Some(RingRecord::Comm {
                tid: comm.tid as u32,
                name,
                exec: comm.is_execve,
                at,
            })
        }
        RecordType::READ => Some(RingRecord::Last {
            pid: half(own, 0)?,
            tid: half(own, 4)?,
            id: common.id?,
            at,
            counts: counts(own.get(8..)?)?,
        }),
        _ => None,
    }
}

/// Parses the counts of a group by hand, because the crate skips them in samples and does not know `PERF_RECORD_READ`.
fn counts(bytes: &[u8]) -> Option<GroupCounts<'_>> {
    let events = usize::try_from(word(bytes, 0)?).ok()?;
    let pairs = bytes.get(24..)?.get(..events.checked_mul(16)?)?;
    Some(GroupCounts {
        enabled: word(bytes, 8)?,
        running: word(bytes, 16)?,
        pairs,
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use crate::perf::sys::abi;

    fn record(kind: u32, body: &[u64]) -> Vec<u8> {
        let size = 8 + 8 * body.len() as u64;
        let header = u64::from(kind) | size << 48;
        [header]
            .iter()
            .chain(body)
            .flat_map(|w| w.to_ne_bytes())
            .collect()
    }

    const fn pair(low: u32, high: u32) -> u64 {
        low as u64 | (high as u64) << 32
    }

    fn group(enabled: u64, running: u64, values: &[u64]) -> Vec<u64> {
        let pairs = values.iter().flat_map(|v| [*v, 0]);
        [values.len() as u64, enabled, running]
            .into_iter()
            .chain(pairs)
            .collect()
    }

    pub fn fork(pid: u32, tid: u32, parent: u32, at: u64) -> Vec<u8> {
        let body = [
            pair(pid, pid),
            pair(tid, parent),
            at,
            pair(pid, tid),
            at,
            0,
            1,
        ];
        record(abi::PERF_RECORD_FORK, &body)
    }

    pub fn exit(pid: u32, tid: u32, at: u64) -> Vec<u8> {
        record(
            abi::PERF_RECORD_EXIT,
            &[pair(pid, 0), pair(tid, 0), at, pair(pid, tid), at, 0, 1],
        )
    }

    pub fn comm(pid: u32, tid: u32, at: u64) -> Vec<u8> {
        let name = u64::from_ne_bytes(*b"worker\0\0");
        record(
            abi::PERF_RECORD_COMM,
            &[pair(pid, tid), name, pair(pid, tid), at, 0, 1],
        )
    }

    pub fn starts(pid: u32, at: u64) -> Vec<u8> {
        let mut record = comm(pid, pid, at);
        record[5] |= (abi::PERF_RECORD_MISC_COMM_EXEC >> 8) as u8;
        record
    }

    pub fn last(pid: u32, tid: u32, id: u64, at: u64, running: u64, values: &[u64]) -> Vec<u8> {
        let body: Vec<u64> = [
            vec![pair(pid, tid)],
            group(running, running, values),
            vec![pair(pid, tid), at, 0, id],
        ]
        .concat();
        record(abi::PERF_RECORD_READ, &body)
    }

    pub fn sample(pid: u32, tid: u32, id: u64, at: u64, running: u64, values: &[u64]) -> Vec<u8> {
        record(
            abi::PERF_RECORD_SAMPLE,
            &[
                vec![id, pair(pid, tid), at, 0],
                group(running, running, values),
            ]
            .concat(),
        )
    }

    pub fn lost(records: u64) -> Vec<u8> {
        record(abi::PERF_RECORD_LOST, &[1, records, 0, 0, 0, 1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            parse(&testing::fork(1, 2, 1, 9)),
            RingRecord::Fork {
                pid: 1,
                tid: 2,
                parent: 1,
                at: 9
            }
        );
        assert_eq!(
            parse(&testing::exit(1, 2, 9)),
            RingRecord::Exit {
                pid: 1,
                tid: 2,
                at: 9
            }
        );
        assert_eq!(
            parse(&testing::comm(1, 2, 9)),
            RingRecord::Comm {
                tid: 2,
                name: b"worker",
                exec: false,
                at: 9
            }
        );
        assert_eq!(parse(&testing::lost(7)), RingRecord::Lost { records: 7 });
        let bytes = testing::last(1, 2, 33, 9, 5, &[10, 20]);
        let RingRecord::Last {
            pid: 1,
            tid: 2,
            id: 33,
            at: 9,
            counts,
        } = parse(&bytes)
        else {
            panic!()
        };
        assert_eq!(
            (
                counts.enabled,
                counts.running,
                counts.values().collect::<Vec<_>>()
            ),
            (5, 5, vec![10, 20])
        );
        let bytes = testing::sample(1, 2, 33, 9, 5, &[10]);
        assert!(matches!(
            parse(&bytes),
            RingRecord::Sample {
                pid: 1,
                tid: 2,
                id: 33,
                at: 9,
                ..
            }
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_reader(kind in 0..20u32, mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(head) = bytes.get_mut(..4) {
                head.copy_from_slice(&kind.to_ne_bytes());
            }
            if let RingRecord::Sample { counts, .. } | RingRecord::Last { counts, .. } = parse(&bytes) {
                prop_assert!(counts.values().count() * 16 <= bytes.len());
            }
        }
    }
}

//! Parsing of the records of a ring buffer.
//!
//! Input: one record as the kernel wrote it for the sample type of [`super::sys`]. Output: a [`RingRecord`]. Unknown or
//! truncated records become [`RingRecord::Other`].

use super::sys::abi;

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
        self.pairs.chunks_exact(16).filter_map(|pair| word(pair, 0))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..at + 8)?
        .try_into()
        .ok()
        .map(u64::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_ne_bytes)
}

/// Number of bytes that end every record except for samples: PID, TID, time, CPU, identifier.
const TRAILER: usize = 32;

pub(crate) fn parse(bytes: &[u8]) -> RingRecord<'_> {
    let Some(kind) = half(bytes, 0) else {
        return RingRecord::Other;
    };
    let body = bytes.get(8..).unwrap_or_default();
    let record = match kind {
        abi::PERF_RECORD_SAMPLE => sample(body),
        abi::PERF_RECORD_LOST => word(body, 8).map(|records| RingRecord::Lost { records }),
        _ => with_trailer(
            kind,
            bytes.get(4..6).is_some_and(|misc| misc[1] & EXEC != 0),
            body,
        ),
    };
    record.unwrap_or(RingRecord::Other)
}

fn sample(body: &[u8]) -> Option<RingRecord<'_>> {
    let counts = counts(body.get(32..)?)?;
    Some(RingRecord::Sample {
        id: word(body, 0)?,
        pid: half(body, 8)?,
        tid: half(body, 12)?,
        at: word(body, 16)?,
        counts,
    })
}

/// Bit in the upper byte of a record's flags: the name was given by an `exec`.
const EXEC: u8 = (abi::PERF_RECORD_MISC_COMM_EXEC >> 8) as u8;

fn with_trailer(kind: u32, exec: bool, body: &[u8]) -> Option<RingRecord<'_>> {
    let (own, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let at = word(trailer, 8)?;
    match kind {
        abi::PERF_RECORD_FORK => Some(RingRecord::Fork {
            pid: half(own, 0)?,
            tid: half(own, 8)?,
            parent: half(own, 12)?,
            at,
        }),
        abi::PERF_RECORD_EXIT => Some(RingRecord::Exit {
            pid: half(own, 0)?,
            tid: half(own, 8)?,
            at,
        }),
        abi::PERF_RECORD_COMM => {
            let name = own.get(8..)?;
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            Some(RingRecord::Comm {
                tid: half(own, 4)?,
                name: &name[..end],
                exec,
                at,
            })
        }
        abi::PERF_RECORD_READ => {
            let counts = counts(own.get(8..)?)?;
            Some(RingRecord::Last {
                pid: half(own, 0)?,
                tid: half(own, 4)?,
                id: word(trailer, 24)?,
                at,
                counts,
            })
        }
        _ => None,
    }
}

fn counts(bytes: &[u8]) -> Option<GroupCounts<'_>> {
    let events = usize::try_from(word(bytes, 0)?).ok()?;
    let pairs = bytes.get(24..24 + events.checked_mul(16)?)?;
    Some(GroupCounts {
        enabled: word(bytes, 8)?,
        running: word(bytes, 16)?,
        pairs,
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::abi;

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
        record[5] |= super::EXEC;
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

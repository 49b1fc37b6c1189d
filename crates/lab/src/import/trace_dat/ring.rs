//! Pages of the kernel's ring buffer (`kernel/trace/ring_buffer.c`), as trace-cmd stores them.
//!
//! A page has a time in ns, the number of used bytes with two flags, and events. An event begins with a word of 32 bits: 5 bits of
//! kind or length, and 27 bits of time since the event before. The lowest bits come first on little-endian machines.

use super::cursor::ByteOrder;

/// Layout of the pages of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLayout {
    pub order: ByteOrder,
    /// Bytes of a page.
    pub page: usize,
    /// Offset and size of the number of used bytes.
    pub commit: (usize, usize),
    /// Offset of the first event.
    pub data: usize,
}

const USED: u64 = (1 << 27) - 1;
const LOST_SOME: u64 = 1 << 31;
const LOST_IS_STORED: u64 = 1 << 30;
/// Bits of an absolute time that the event does not have; those of the time before are kept.
const NOT_STORED: u64 = 0xf8 << 56;

/// Calls `see` with the time in ns and the data of each event. Returns the number of lost events, of which there may be more.
///
/// # Errors
/// A page has more used bytes than bytes, or an event is longer than its page.
pub fn read(
    pages: &[u8],
    layout: RingLayout,
    mut see: impl FnMut(u64, &[u8]),
) -> Result<u64, String> {
    let mut lost = 0;
    for (nth, page) in pages.chunks(layout.page).enumerate() {
        let damaged = || format!("page {nth} of a CPU is damaged");
        let number = |at, size| layout.order.number(page, at, size);
        let time_ns = number(0, 8).ok_or_else(damaged)?;
        let (at, size) = layout.commit;
        let commit = number(at, size).ok_or_else(damaged)?;
        let end = layout.data + (commit & USED) as usize;
        let events = page.get(layout.data..end).ok_or_else(damaged)?;
        if commit & LOST_SOME != 0 {
            let stored = (commit & LOST_IS_STORED != 0).then(|| number(end, size));
            lost += stored.flatten().map_or(1, |count| count.max(1));
        }
        read_page(events, layout.order, time_ns, &mut see).ok_or_else(damaged)?;
    }
    Ok(lost)
}

fn read_page(
    events: &[u8],
    order: ByteOrder,
    mut time_ns: u64,
    see: &mut impl FnMut(u64, &[u8]),
) -> Option<()> {
    let word = |at: usize| order.number(events, at, 4);
    let mut at = 0;
    while at < events.len() {
        let head = word(at)?;
        let (kind, delta) = match order {
            ByteOrder::Little => (head & 31, head >> 5),
            ByteOrder::Big => (head >> 27, head & ((1 << 27) - 1)),
        };
        at += 4;
        let long_delta = |at| Some((word(at)? << 27) + delta);
        match kind {
            // The rest of the page is empty.
            29 if delta == 0 => return Some(()),
            // A discarded event.
            29 => {
                time_ns = time_ns.wrapping_add(delta);
                at += word(at)? as usize;
            }
            30 => {
                time_ns = time_ns.wrapping_add(long_delta(at)?);
                at += 4;
            }
            31 => {
                time_ns = long_delta(at)? & !NOT_STORED | time_ns & NOT_STORED;
                at += 4;
            }
            _ => {
                time_ns = time_ns.wrapping_add(delta);
                let length = match kind {
                    0 => (word(at)? as usize).checked_sub(4)?.next_multiple_of(4),
                    words => 4 * words as usize,
                };
                at += if kind == 0 { 4 } else { 0 };
                see(time_ns, events.get(at..at.checked_add(length)?)?);
                at += length;
            }
        }
    }
    Some(())
}

//! Prefetchers, which request lines before an access needs them.
//!
//! Input: lines that missed in the prefetcher's cache. Output: lines to prefetch. Events contain no program counter. The
//! stride prefetcher therefore follows the last lines accessed in a few pages, as the streamers of current processors do.

use crate::cache::LineKey;

/// Kind of prefetcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    #[default]
    None,
    /// A miss prefetches the next line.
    NextLine,
    /// If a stride was seen twice in a page, a miss prefetches up to `degree` lines ahead.
    Stride { degree: u32 },
}

/// Number of pages that are tracked at the same time.
const PAGES: usize = 32;
/// Number of lines per page.
const PAGE_LINES: u64 = 64;
/// Number of consecutive occurrences that confirm a stride.
const CONFIRMED: u8 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct PrefetchPage {
    key: Option<LineKey>,
    last: i64,
    stride: i64,
    confirmed: u8,
    used: u64,
}

/// State of one prefetcher.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    what: Prefetch,
    pages: [PrefetchPage; PAGES],
    clock: u64,
}

impl Prefetcher {
    #[must_use]
    pub fn new(what: Prefetch) -> Self {
        Self {
            what,
            pages: [PrefetchPage::default(); PAGES],
            clock: 0,
        }
    }

    /// Appends to `bring` the lines to prefetch after a miss of `key`, all in the same page.
    pub fn on_miss(&mut self, key: LineKey, bring: &mut Vec<LineKey>) {
        match self.what {
            Prefetch::None => {}
            Prefetch::NextLine if key.line() % PAGE_LINES == PAGE_LINES - 1 => {}
            Prefetch::NextLine => bring.push(key.offset(1)),
            Prefetch::Stride { degree } => self.stride(key, degree, bring),
        }
    }

    fn stride(&mut self, key: LineKey, degree: u32, bring: &mut Vec<LineKey>) {
        self.clock += 1;
        let at = (key.line() % PAGE_LINES) as i64;
        let base = key.offset(-at);
        let known = self.pages.iter().position(|p| p.key == Some(base));
        let Some(slot) = known else {
            let oldest = (0..PAGES).min_by_key(|p| self.pages[*p].used).unwrap_or(0);
            self.pages[oldest] = PrefetchPage {
                key: Some(base),
                last: at,
                used: self.clock,
                ..PrefetchPage::default()
            };
            return;
        };
        let page = &mut self.pages[slot];
        page.used = self.clock;
        let stride = at - page.last;
        if stride == 0 {
            return;
        }
        page.confirmed = if stride == page.stride {
            (page.confirmed + 1).min(CONFIRMED)
        } else {
            1
        };
        (page.last, page.stride) = (at, stride);
        if page.confirmed >= CONFIRMED {
            let ahead = (1..=i64::from(degree)).map(|n| at + n * stride);
            let inside = ahead.filter(|line| (0..PAGE_LINES as i64).contains(line));
            bring.extend(inside.map(|line| base.offset(line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(prefetcher: &mut Prefetcher, line: u64) -> Vec<u64> {
        let mut bring = Vec::new();
        prefetcher.on_miss(LineKey::new(3, line), &mut bring);
        assert!(bring.iter().all(|k| k.owner() == 3));
        bring.iter().map(|k| k.line()).collect()
    }

    #[test]
    fn the_next_line_comes_but_not_from_the_next_page() {
        let mut next = Prefetcher::new(Prefetch::NextLine);
        assert_eq!(lines(&mut next, 100), [101]);
        assert!(lines(&mut next, 127).is_empty());
    }

    #[test]
    fn a_stride_is_followed_once_it_came_twice() {
        let mut stride = Prefetcher::new(Prefetch::Stride { degree: 2 });
        assert!(lines(&mut stride, 128).is_empty());
        assert!(lines(&mut stride, 131).is_empty());
        assert_eq!(lines(&mut stride, 134), [137, 140]);
        assert!(lines(&mut stride, 999).is_empty(), "another page");
        assert_eq!(lines(&mut stride, 137), [140, 143]);
        assert!(lines(&mut stride, 130).is_empty(), "the stride changed");
    }
}

//! Container of trace-cmd's files, versions 6 and 7 (manual pages trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5)).
//!
//! Version 6 stores its parts in a fixed order. Version 7 stores sections, which options point to and which may be compressed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::super::unpacked::UnpackedBytes;
use super::cursor::{ByteOrder, FileCursor};
use super::sections::{Places, Sections};

pub const MAGIC: &[u8] = b"\x17\x08Dtracing";

/// Parts of a file that describe threads.
#[derive(Debug)]
pub struct Contents<'a> {
    pub order: ByteOrder,
    /// Text of `events/header_page`.
    pub page_format: String,
    /// Texts of the formats of all events.
    pub event_formats: Vec<String>,
    /// Threads and their names, as in `saved_cmdlines`.
    pub names: String,
    /// Main buffer, and behind it those of instances.
    pub buffers: Vec<TraceBuffer<'a>>,
    pub tsc: Option<Tsc>,
    /// Text of `trace`, which a file has in place of pages.
    pub text: Option<Cow<'a, [u8]>>,
    /// Numbers of events that were lost as the kernel's own statistics have it, by the names of buffers.
    pub lost: BTreeMap<String, u64>,
    /// Name of the buffer of which the next statistics tell.
    stats_of: String,
    /// Names of parts that are not used.
    pub not_kept: BTreeSet<String>,
}

/// Ring buffer of the kernel.
#[derive(Debug, Default)]
pub(crate) struct TraceBuffer<'a> {
    /// Name of the instance; empty for the main buffer.
    pub name: String,
    /// Clock, as `local`, or as `[local] global mono`.
    pub clock: String,
    /// Bytes of a page.
    pub page: usize,
    /// CPUs with their pages.
    pub cpus: Vec<(u32, Cow<'a, [u8]>)>,
}

/// Conversion of times: ns = time * multiplier >> shift. The file's offset is left out, because only differences of times are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tsc {
    pub multiplier: u32,
    pub shift: u32,
}

/// Checks the first bytes of a file.
///
/// # Errors
/// The version is not 6 or 7, or the parts of the version do not follow.
pub fn check(head: &[u8]) -> Result<(), String> {
    let TraceDatHead { is_7, mut rest, .. } = TraceDatHead::read(head)?;
    if !is_7 {
        return only_page_format(&mut rest);
    }
    if rest.text()?.is_empty() {
        return Err("it does not name its compression".into());
    }
    Ok(())
}

/// Parts that the heads of both versions have.
struct TraceDatHead<'a> {
    is_7: bool,
    order: ByteOrder,
    /// Bytes of a page of the ring buffer.
    page: usize,
    rest: FileCursor<'a>,
}

impl<'a> TraceDatHead<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let at = MAGIC.len() as u64;
        let mut head = FileCursor::new(bytes, at, ByteOrder::Little)?;
        let version = head.text()?;
        if !["6", "7"].contains(&version.as_str()) {
            return Err(format!(
                "its version is {}, not 6 or 7",
                version.escape_debug()
            ));
        }
        let order = match head.byte()? {
            0 => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let mut rest = FileCursor::new(bytes, head.at(), order)?;
        let _long_bytes = rest.byte()?;
        Ok(Self {
            is_7: version == "7",
            order,
            page: rest.word()? as usize,
            rest,
        })
    }
}

fn only_page_format(head: &mut FileCursor<'_>) -> Result<(), String> {
    if head.take(12)? != b"header_page\0" {
        return Err("the format of its pages is missing".into());
    }
    Ok(())
}

impl<'a> Contents<'a> {
    /// Reads a file of version 6 or 7.
    ///
    /// # Errors
    /// The file has another version, ends early, or is compressed by something else than zstd.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let TraceDatHead {
            is_7,
            order,
            page,
            rest: head,
        } = TraceDatHead::read(bytes)?;
        let mut contents = Self {
            order,
            page_format: String::new(),
            event_formats: Vec::new(),
            names: String::new(),
            buffers: Vec::new(),
            tsc: None,
            text: None,
            lost: BTreeMap::new(),
            stats_of: String::new(),
            not_kept: BTreeSet::new(),
        };
        if is_7 {
            contents.read_version_7(bytes, head)?;
        } else {
            contents.read_version_6(bytes, page, head)?;
        }
        Ok(contents)
    }

    fn read_version_6(
        &mut self,
        bytes: &'a [u8],
        page: usize,
        mut head: FileCursor<'a>,
    ) -> Result<(), String> {
        self.see_page_format(&mut head)?;
        self.see_formats_of_ftrace(&mut head)?;
        self.see_event_formats(&mut head)?;
        for name in ["kallsyms", "printk"] {
            let length = head.word()?;
            head.take(u64::from(length))?;
            self.not_kept.insert(name.into());
        }
        self.names = head.long_text()?;
        let cpus = head.word()?;
        let mut file = BuffersOf6 {
            bytes,
            cpus,
            places: Places::default(),
            instances: Vec::new(),
        };
        let main = TraceBuffer {
            page,
            ..TraceBuffer::default()
        };
        self.see_buffer_of_6(&mut file, head, main)?;
        for (at, name) in std::mem::take(&mut file.instances) {
            let head = FileCursor::new(bytes, at, self.order)?;
            let clock = self.buffers.first().map(|main| main.clock.clone());
            let instance = TraceBuffer {
                name,
                clock: clock.unwrap_or_default(),
                page,
                ..TraceBuffer::default()
            };
            self.see_buffer_of_6(&mut file, head, instance)?;
        }
        Ok(())
    }

    /// Reads the options and pages of a buffer of version 6.
    fn see_buffer_of_6(
        &mut self,
        file: &mut BuffersOf6<'a>,
        mut head: FileCursor<'a>,
        mut buffer: TraceBuffer<'a>,
    ) -> Result<(), String> {
        loop {
            match head.take(10)? {
                b"options  \0" => while self.see_option_of_6(file, &mut head, &mut buffer)? {},
                b"flyrecord\0" => break,
                b"latency  \0" => {
                    self.text = Some(Cow::Borrowed(head.rest()));
                    return Ok(());
                }
                _ => return Err("there are no events behind its head".into()),
            }
        }
        for cpu in 0..file.cpus {
            let (at, length) = (head.long()?, head.long()?);
            let mut data = FileCursor::new(file.bytes, at, self.order)?;
            let pages = data.take(length)?;
            let what = format!("the pages of CPU {cpu}");
            file.places.add(&what, at, data.at())?;
            buffer.cpus.push((cpu, Cow::Borrowed(pages)));
        }
        self.buffers.push(buffer);
        Ok(())
    }

    /// Reads an option of version 6; false at the end of the options.
    fn see_option_of_6(
        &mut self,
        file: &mut BuffersOf6<'a>,
        head: &mut FileCursor<'a>,
        buffer: &mut TraceBuffer<'a>,
    ) -> Result<bool, String> {
        let id = head.short()?;
        if id == 0 {
            return Ok(false);
        }
        let length = head.word()?;
        let data = head.take(u64::from(length))?;
        match id {
            3 => {
                let mut place = FileCursor::new(data, 0, self.order)?;
                file.instances.push((place.long()?, place.text()?));
            }
            4 => buffer.clock = text_of(data),
            _ => self.see_option(id, data)?,
        }
        Ok(true)
    }

    fn read_version_7(&mut self, bytes: &'a [u8], mut head: FileCursor<'a>) -> Result<(), String> {
        let codec = head.text()?;
        let _version_of_codec = head.text()?;
        let mut file = Sections {
            bytes,
            order: self.order,
            codec,
            unpacked: UnpackedBytes::of(bytes.len()),
            places: Places::default(),
        };
        let mut buffers = Vec::new();
        let mut at = head.long()?;
        // Each section of options has the place of the next one, so damaged ones can be a ring.
        let mut seen = BTreeSet::new();
        while at != 0 && seen.insert(at) {
            let section = file.section(at)?;
            let mut options = FileCursor::new(&section, 0, self.order)?;
            at = loop {
                let id = options.short()?;
                let length = options.word()?;
                let data = options.take(u64::from(length))?;
                let mut data_of = FileCursor::new(data, 0, self.order)?;
                match id {
                    0 => break data_of.long()?,
                    3 => buffers.push(data.to_vec()),
                    16..=21 => self.see_section(id, &file.section(data_of.long()?)?)?,
                    22 if self.text.is_none() => self.text = Some(file.section(data_of.long()?)?),
                    _ => self.see_option(id, data)?,
                }
            };
        }
        for buffer in buffers {
            self.see_buffer(&mut file, &buffer)?;
        }
        Ok(())
    }

    fn see_section(&mut self, id: u16, bytes: &[u8]) -> Result<(), String> {
        let mut section = FileCursor::new(bytes, 0, self.order)?;
        match id {
            16 => self.see_page_format(&mut section),
            17 => self.see_formats_of_ftrace(&mut section),
            18 => self.see_event_formats(&mut section),
            21 => {
                self.names = section.long_text()?;
                Ok(())
            }
            _ => {
                let name = if id == 19 { "kallsyms" } else { "printk" };
                self.not_kept.insert(name.into());
                Ok(())
            }
        }
    }

    fn see_page_format(&mut self, head: &mut FileCursor<'_>) -> Result<(), String> {
        only_page_format(head)?;
        self.page_format = head.long_text()?;
        head.take(13)?;
        // The format of an event's head has been the same since pages exist.
        head.long_text()?;
        Ok(())
    }

    fn see_formats_of_ftrace(&mut self, head: &mut FileCursor<'_>) -> Result<(), String> {
        for _ in 0..head.word()? {
            self.event_formats.push(head.long_text()?);
        }
        Ok(())
    }

    fn see_event_formats(&mut self, head: &mut FileCursor<'_>) -> Result<(), String> {
        for _ in 0..head.word()? {
            let _system = head.text()?;
            self.see_formats_of_ftrace(head)?;
        }
        Ok(())
    }

    /// Reads an option that both versions have.
    fn see_option(&mut self, id: u16, data: &[u8]) -> Result<(), String> {
        match id {
            2 => {
                let stats = text_of(data);
                if let Some((_, name)) = stats.split_once("Buffer: ") {
                    name.trim().clone_into(&mut self.stats_of);
                }
                *self.lost.entry(self.stats_of.clone()).or_default() += lost_of(&stats);
            }
            14 => {
                let mut data = FileCursor::new(data, 0, self.order)?;
                self.tsc = Some(Tsc {
                    multiplier: data.word()?,
                    shift: data.word()?,
                });
            }
            _ => {
                self.not_kept.insert(name_of_option(id));
            }
        }
        Ok(())
    }

    /// Reads a buffer of version 7 with its pages.
    fn see_buffer(&mut self, file: &mut Sections<'a>, bytes: &[u8]) -> Result<(), String> {
        let mut head = FileCursor::new(bytes, 0, self.order)?;
        let section = head.long()?;
        let mut buffer = TraceBuffer {
            name: head.text()?,
            clock: head.text()?,
            page: head.word()? as usize,
            cpus: Vec::new(),
        };
        for _ in 0..head.word()? {
            let cpu = head.word()?;
            let (at, length) = (head.long()?, head.long()?);
            let pages = file.pages(cpu, section, at, length)?;
            buffer.cpus.push((cpu, pages));
        }
        self.buffers.push(buffer);
        Ok(())
    }
}

/// Buffers of a file of version 6.
struct BuffersOf6<'a> {
    bytes: &'a [u8],
    /// Number of CPUs of each buffer.
    cpus: u32,
    places: Places,
    /// Places and names of the instances.
    instances: Vec<(u64, String)>,
}

fn text_of(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    text.trim_end_matches('\0').to_owned()
}

/// Returns the name of an option that is not used.
fn name_of_option(id: u16) -> String {
    let name = match id {
        1 => "date",
        4 => "clock",
        5 => "uname",
        6 => "event hooks",
        7 => "offset of times",
        8 => "number of CPUs",
        9 => "version of trace-cmd",
        10 => "memory maps",
        11 => "id of the trace",
        12 => "time shift of a guest",
        13 => "guest",
        _ => return format!("option {id}"),
    };
    name.into()
}

/// Sums up the lost events in a text of `per_cpu/cpuN/stats`.
fn lost_of(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(": "));
    let lost = lines.filter(|(name, _)| ["overrun", "dropped events"].contains(name));
    lost.filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

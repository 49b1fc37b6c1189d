//! Where the fields of the kernel's structures are, by the type information that it has of itself.
//!
//! Input: BTF, as `/sys/kernel/btf/vmlinux` has it. Output: offsets in bytes. libbpf would find them too, in some hundred times the
//! instructions: it checks each of a hundred thousand types and looks for candidates among all of them.

/// Reads types one after the other.
pub(crate) struct Types<'a> {
    /// Where each type begins; the first is of nothing.
    starts: Vec<usize>,
    types: &'a [u8],
    strings: &'a [u8],
}

const MAGIC: u32 = 0xeb9f;
/// Bytes of a type before what its kind adds, and of a member.
const HEAD: usize = 12;
const MEMBER: usize = 12;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Structures without names in each other.
const DEEPEST: u32 = 8;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

/// Bytes that a type of this kind has after its head, by how many parts it has.
const fn added(kind: u32, parts: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, other names, qualifiers, functions, floating point, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerations of 32 bits, prototypes.
        6 | 13 => 8 * parts,
        // Structures, unions, sections, enumerations of 64 bits.
        STRUCT | UNION | 15 | 19 => 12 * parts,
        _ => return None,
    })
}

impl<'a> Types<'a> {
    /// Types of that information, if it is whole and of this machine's byte order.
    pub fn read(btf: &'a [u8]) -> Option<Self> {
        if word(btf, 0)? & 0xffff != MAGIC {
            return None;
        }
        let header = word(btf, 4)? as usize;
        let part = |at: usize| {
            let from = header.checked_add(word(btf, at)? as usize)?;
            btf.get(from..from.checked_add(word(btf, at + 4)? as usize)?)
        };
        let types = part(8)?;
        let strings = part(16)?;
        let mut starts = vec![usize::MAX];
        let mut at = 0;
        while at < types.len() {
            let info = word(types, at + 4)?;
            starts.push(at);
            at += HEAD + added(info >> 24 & 0x1f, (info & 0xffff) as usize)?;
        }
        Some(Self {
            starts,
            types,
            strings,
        })
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let rest = self.strings.get(name as usize..).unwrap_or_default();
        rest.strip_prefix(wanted.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The first structure with this name.
    pub fn structure(&self, name: &str) -> Option<Structure<'_>> {
        let is_it = |start: &&usize| {
            let kind = word(self.types, **start + 4).map_or(0, |info| info >> 24 & 0x1f);
            kind == STRUCT && word(self.types, **start).is_some_and(|of| self.is_named(of, name))
        };
        Some(Structure {
            types: self,
            start: *self.starts[1..].iter().find(is_it)?,
        })
    }

    /// Offset in bits and type of a member, which may be in a structure without a name.
    fn member(&self, start: usize, wanted: &str, depth: u32) -> Option<(u32, u32)> {
        let info = word(self.types, start.checked_add(4)?)?;
        if !matches!(info >> 24 & 0x1f, STRUCT | UNION) {
            return None;
        }
        // With bit fields, the upper bits of an offset are a width.
        let mask = if info >> 31 == 1 {
            0x00ff_ffff
        } else {
            u32::MAX
        };
        (0..(info & 0xffff) as usize).find_map(|nth| {
            let at = start + HEAD + nth * MEMBER;
            let name = word(self.types, at)?;
            let of = word(self.types, at + 4)?;
            let offset = word(self.types, at + 8)? & mask;
            if self.is_named(name, wanted) {
                return Some((offset, of));
            }
            let inner = *self.starts.get(of as usize)?;
            let (within, of) = if name == 0 && depth > 0 {
                self.member(inner, wanted, depth - 1)?
            } else {
                return None;
            };
            Some((offset + within, of))
        })
    }
}

/// A structure, or a union.
pub(crate) struct Structure<'a> {
    types: &'a Types<'a>,
    start: usize,
}

impl Structure<'_> {
    /// The offset of a field in bytes; `path` leads through structures in it.
    pub fn offset(&self, path: &[&str]) -> Option<u32> {
        let mut start = self.start;
        let mut bits = 0;
        for name in path {
            let (offset, of) = self.types.member(start, name, DEEPEST)?;
            bits += offset;
            start = *self.types.starts.get(of as usize)?;
        }
        (bits % 8 == 0).then_some(bits / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of these types and strings, as the kernel would write it.
    fn btf(types: &[u32], strings: &str) -> Vec<u8> {
        let length = 4 * types.len() as u32;
        let header = [MAGIC | 1 << 16, 24, 0, length, length, strings.len() as u32];
        let words = header
            .iter()
            .chain(types)
            .flat_map(|word| word.to_ne_bytes());
        words.chain(strings.bytes()).collect()
    }

    const fn kind(kind: u32, parts: u32) -> u32 {
        kind << 24 | parts
    }

    #[test]
    fn fields_are_found_in_structures_within_structures() {
        // 1: int; 5: task; 10: se; 13: ran; 17: task again.
        let strings = "\0int\0task\0se\0ran\0";
        let types = [
            [1, kind(1, 0), 4, 32].to_vec(),
            // A pointer, an enumeration, a function of that name.
            [0, kind(2, 0), 1].to_vec(),
            [0, kind(6, 2), 4, 1, 0, 1, 1].to_vec(),
            [5, kind(12, 0), 1].to_vec(),
            // se { int; int ran }, without a name { int; se se }, task { int; that; int ran:4 }.
            [10, kind(4, 2), 8, 1, 1, 0, 13, 1, 32].to_vec(),
            [0, kind(4, 2), 12, 1, 1, 0, 10, 5, 32].to_vec(),
            [
                5,
                kind(4, 3) | 1 << 31,
                20,
                1,
                1,
                0,
                0,
                6,
                32,
                13,
                1,
                4 << 24 | 128,
            ]
            .to_vec(),
        ];
        let whole = btf(&types.concat(), strings);
        let read = Types::read(&whole).unwrap();
        let task = read.structure("task").unwrap();
        let se = read.structure("se").unwrap();
        assert_eq!(task.offset(&["se", "ran"]), Some(4 + 4 + 4));
        assert_eq!(task.offset(&["ran"]), Some(16));
        assert_eq!(se.offset(&["ran"]), Some(4));
        assert_eq!(se.offset(&["se"]), None);
        assert!(read.structure("tas").is_none());
        // What is broken off anywhere is not read as something else.
        for length in 0..whole.len() {
            let offset = Types::read(&whole[..length])
                .and_then(|types| types.structure("task")?.offset(&["se", "ran"]));
            assert_eq!(offset, None, "{length} bytes");
        }
    }

    #[test]
    fn what_has_itself_without_a_name_ends() {
        let strings = "\0task\0";
        let types = [[1, kind(4, 1), 4, 0, 2, 0], [0, kind(4, 1), 4, 0, 2, 0]].concat();
        let whole = btf(&types, strings);
        let read = Types::read(&whole).unwrap();
        assert_eq!(read.structure("task").unwrap().offset(&["ran"]), None);
    }
}

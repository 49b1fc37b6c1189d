//! Signatures inside ELF binaries, and build-ids.
//!
//! A signature is an ELF note in a section of its own, `.note.countersteer`. The section is not loaded: the executed code is
//! unchanged byte by byte, and so is the build-id. The note is found through the section headers, which `cp` and `strip` keep.
//! It is also found through program headers, where a linker may have put it.

use std::path::Path;

use object::elf::{self, FileHeader64, SHT_NOTE, SectionHeader64};
use object::endian::{Endianness, LittleEndian as LE, U32, U64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Object, ReadCache, ReadRef};

use super::{Carried, SignatureError, note};

const SECTION: &[u8] = b".note.countersteer";
/// Limit on the number of sections, beyond which ELF uses extended numbering.
const MOST_SECTIONS: usize = 0xff00 - 1;

/// Build-id and signature of a binary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Binary {
    pub build_id: Option<Vec<u8>>,
    /// Signature inside the binary; `None` if there is none.
    pub carried: Option<Carried>,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> SignatureError {
    let path = path.display().to_string();
    move |source| SignatureError::Io { path, source }
}

/// Reads the build-id and the signature of a 64-bit ELF file.
///
/// # Errors
/// Fails if the file cannot be read, is no 64-bit ELF file, or has a damaged signature.
pub fn read(path: &Path) -> Result<Binary, SignatureError> {
    let file = countersteer_files::read::open(path).map_err(failed(path))?;
    parse(&ReadCache::new(file)).map_err(|why| SignatureError::Elf {
        path: path.display().to_string(),
        why,
    })
}

/// Reads the build-id and the signature of a binary in memory.
///
/// # Errors
/// Fails with a description if the data is no 64-bit ELF file, or has a damaged signature.
pub fn parse<'data>(data: impl ReadRef<'data>) -> Result<Binary, String> {
    let file = ElfFile64::<Endianness, _>::parse(data);
    let file = file.map_err(|_| "this is no 64-bit ELF file")?;
    let build_id = file.build_id().ok().flatten();
    let build_id = build_id
        .filter(|id| (1..=64).contains(&id.len()))
        .map(<[u8]>::to_vec);
    let carried = desc(&file, data).map(note::decode).transpose()?;
    Ok(Binary { build_id, carried })
}

/// Returns the contents of the note with the signature; `None` if there is none.
fn desc<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    data: R,
) -> Option<&'data [u8]> {
    let endian = file.endian();
    let sections = file
        .elf_section_table()
        .iter()
        .filter_map(|s| s.notes(endian, data).ok().flatten());
    let segments = file
        .elf_program_headers()
        .iter()
        .filter_map(|s| s.notes(endian, data).ok().flatten());
    for mut notes in sections.chain(segments) {
        // After an unreadable note, the rest of its section is skipped.
        while let Ok(Some(found)) = notes.next() {
            if found.name() == note::OWNER
                && found.n_type(endian) == elf::NoteType(note::TYPE)
                && found.desc().len() <= note::MOST_BYTES
            {
                return Some(found.desc());
            }
        }
    }
    None
}

/// Returns the header of a note section that is not loaded.
fn note_section(name: u32, at: u64, size: u64) -> SectionHeader64<object::LittleEndian> {
    SectionHeader64 {
        sh_name: U32::new(LE, name),
        sh_type: U32::new(LE, SHT_NOTE),
        sh_flags: U64::new(LE, elf::SectionFlags(0)),
        sh_addr: U64::new(LE, 0),
        sh_offset: U64::new(LE, at),
        sh_size: U64::new(LE, size),
        sh_link: U32::new(LE, 0),
        sh_info: U32::new(LE, 0),
        sh_addralign: U64::new(LE, 4),
        sh_entsize: U64::new(LE, 0),
    }
}

/// Returns a copy of the binary with the signature embedded. A signature that it already has is replaced.
///
/// # Errors
/// Fails with the reason if the signature cannot be embedded.
pub fn embed(binary: &[u8], carried: &Carried) -> Result<Vec<u8>, String> {
    let header = FileHeader64::<object::LittleEndian>::parse(binary)
        .map_err(|_| "this is no 64-bit ELF file")?;
    let endian = header
        .endian()
        .map_err(|_| "this is no little-endian ELF file")?;
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return Err("this is neither a program nor a library".into());
    }
    let sections = header.sections(endian, binary).map_err(|e| e.to_string())?;
    if sections.is_empty() {
        return Err(
            "it has no section headers (they were stripped off): keep the signature in a side file"
                .into(),
        );
    }
    let names_at = usize::from(header.e_shstrndx.get(LE).0);
    if sections.len() >= MOST_SECTIONS || names_at == 0 || names_at >= sections.len() {
        return Err(
            "it has too many sections, or none with their names: keep the signature in a side file"
                .into(),
        );
    }
    let end = end_of(header, &sections.iter().copied().collect::<Vec<_>>());
    if binary.len() as u64 > end {
        return Err(format!(
            "{} bytes follow the program in its file, which it may look for at the end: keep the signature in a side file",
            binary.len() as u64 - end
        ));
    }
    let mut out = binary.to_vec();
    out.resize(out.len().next_multiple_of(4), 0);
    let (at, bytes) = (out.len() as u64, note_of(&note::encode(carried)));
    out.extend(&bytes);
    let mut headers: Vec<SectionHeader64<object::LittleEndian>> =
        sections.iter().copied().collect();
    let known = sections.iter().position(|s| {
        sections
            .section_name(endian, s)
            .is_ok_and(|name| name == SECTION)
    });
    let name = match known {
        Some(row) => headers[row].sh_name.get(LE),
        None => {
            let names = headers[names_at]
                .data(endian, binary)
                .map_err(|e| e.to_string())?;
            let name = names.len() as u32;
            headers[names_at].sh_offset = U64::new(LE, out.len() as u64);
            headers[names_at].sh_size = U64::new(LE, (names.len() + SECTION.len() + 1) as u64);
            out.extend(names);
            out.extend(SECTION);
            out.push(0);
            name
        }
    };
    let section = note_section(name, at, bytes.len() as u64);
    match known {
        Some(row) => headers[row] = section,
        None => headers.push(section),
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let table = out.len() as u64;
    headers
        .iter()
        .for_each(|header| out.extend(object::pod::bytes_of(header)));
    let mut front = *header;
    front.e_shoff = U64::new(LE, table);
    front.e_shnum = object::endian::U16::new(LE, headers.len() as u16);
    let front = object::pod::bytes_of(&front);
    out[..front.len()].copy_from_slice(front);
    Ok(out)
}

/// Returns the offset after all data to which the headers refer.
fn end_of(
    header: &FileHeader64<object::LittleEndian>,
    sections: &[SectionHeader64<object::LittleEndian>],
) -> u64 {
    let table = header
        .e_shoff
        .get(LE)
        .saturating_add(sections.len() as u64 * 64);
    let held = sections
        .iter()
        .filter(|s| s.sh_type.get(LE) != elf::SHT_NOBITS);
    let ends = held.map(|s| s.sh_offset.get(LE).saturating_add(s.sh_size.get(LE)));
    ends.chain([table]).max().unwrap_or(0)
}

/// Returns the bytes of a note with its header, given its contents.
fn note_of(desc: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((note::OWNER.len() as u32 + 1).to_le_bytes());
    bytes.extend((desc.len() as u32).to_le_bytes());
    bytes.extend(note::TYPE.to_le_bytes());
    bytes.extend(note::OWNER);
    bytes.resize(bytes.len() + 4 - note::OWNER.len() % 4, 0);
    bytes.extend(desc);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

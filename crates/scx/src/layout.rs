//! Types and addresses of a scheduler's variables, from the compiler's debugging information.
//!
//! The user-space half of a scheduler reads them from the BPF object, to fill its tables and to start its programs. The
//! simulator does that here, so it needs the same facts.

use std::borrow::Cow;

use gimli::{AttributeValue, EndianSlice, Operation, RunTimeEndian, UnitOffset};
use object::{Object as _, ObjectSection as _};
use rustc_hash::FxHashMap;

/// Type of a variable, as far as it matters for its place in memory.
#[derive(Debug)]
enum TypeShape {
    Plain(usize),
    Pointer(Option<usize>),
    List {
        item: usize,
        count: usize,
    },
    Record {
        bytes: usize,
        members: Vec<(String, usize, usize)>,
    },
}

/// Variables and structures of a compiled scheduler.
#[derive(Debug, Default)]
pub struct SchedulerLayout {
    shapes: Vec<TypeShape>,
    /// Type and address of each global variable.
    variables: FxHashMap<String, (usize, usize)>,
    records: FxHashMap<String, usize>,
}

/// Place in memory: address, or offset in a structure, and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariablePlace {
    pub at: usize,
    pub bytes: usize,
}

/// Shape of a map as its variable's type declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    pub kind: u32,
    pub key: u32,
    pub value: u32,
    pub entries: u32,
    /// For maps of maps: offset of the inner maps' addresses in the variable, and their number.
    pub inner: Option<(usize, usize)>,
}

type BytesSlice<'a> = EndianSlice<'a, RunTimeEndian>;
type CompileUnit<'a> = gimli::Unit<BytesSlice<'a>>;
type DebugEntry<'u, 'a> = gimli::DebuggingInformationEntry<'u, 'u, BytesSlice<'a>>;

impl SchedulerLayout {
    /// Reads the debugging information of a compiled scheduler.
    ///
    /// # Errors
    /// Fails if the information is missing or damaged.
    pub fn read(code: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(code).map_err(|e| e.to_string())?;
        let endian = if file.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let load = |id: gimli::SectionId| {
            let section = file.section_by_name(id.name());
            let data = section.map(|section| section.uncompressed_data());
            data.unwrap_or(Ok(Cow::Borrowed(&[])))
        };
        let sections = gimli::DwarfSections::load(load).map_err(|e| e.to_string())?;
        let dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
        let mut reader = DebugReader {
            dwarf: &dwarf,
            layout: Self::default(),
        };
        reader.units().map_err(|e| e.to_string())?;
        Ok(reader.layout)
    }

    /// Place of a variable, or of a part of it, as in `tables[3].cpus[1]`; `None` if there is none.
    pub fn variable(&self, path: &str) -> Option<VariablePlace> {
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let (shape, address) = *self.variables.get(&path[..end])?;
        self.part(shape, address, &path[end..])
    }

    /// Size of a structure; `None` if the scheduler has none of this name.
    pub fn record(&self, name: &str) -> Option<usize> {
        self.records.get(name).map(|shape| self.bytes(*shape))
    }

    /// Place of a member in a structure; `None` if there is none.
    pub fn member(&self, record: &str, path: &str) -> Option<VariablePlace> {
        self.part(*self.records.get(record)?, 0, &format!(".{path}"))
    }

    /// Number of elements of an array, which is a variable or a part of one; 0 if it is none.
    pub fn count(&self, path: &str) -> usize {
        let Some(array) = self.variable(path) else {
            return 0;
        };
        let one = self.variable(&format!("{path}[0]"));
        one.map_or(0, |one| array.bytes / one.bytes.max(1))
    }

    /// Maps of the scheduler by the addresses of their variables.
    pub fn maps(&self) -> impl Iterator<Item = (usize, Declared)> + '_ {
        let variables = self.variables.values();
        variables.filter_map(|(shape, address)| Some((*address, self.map(*shape)?)))
    }

    fn map(&self, shape: usize) -> Option<Declared> {
        let TypeShape::Record { members, .. } = &self.shapes[shape] else {
            return None;
        };
        let find = |name: &str| members.iter().find(|(member, ..)| member == name);
        let target = |name: &str| match self.shapes[find(name)?.2] {
            TypeShape::Pointer(target) => target,
            _ => None,
        };
        // `int (*type)[7]` stands for the number 7.
        let number = |name: &str| match self.shapes[target(name)?] {
            TypeShape::List { count, .. } => u32::try_from(count).ok(),
            _ => None,
        };
        let size = |name: &str| target(name).map_or(0, |shape| self.bytes(shape) as u32);
        Some(Declared {
            kind: number("type")?,
            key: size("key"),
            value: size("value"),
            entries: number("max_entries").unwrap_or(0),
            inner: find("values").map(|(_, offset, _)| (*offset, 0)),
        })
    }

    fn bytes(&self, shape: usize) -> usize {
        match &self.shapes[shape] {
            TypeShape::Plain(bytes) | TypeShape::Record { bytes, .. } => *bytes,
            TypeShape::Pointer(_) => size_of::<usize>(),
            TypeShape::List { item, count } => self.bytes(*item) * count,
        }
    }

    fn part(&self, shape: usize, at: usize, path: &str) -> Option<VariablePlace> {
        if path.is_empty() {
            let bytes = self.bytes(shape);
            return Some(VariablePlace { at, bytes });
        }
        match &self.shapes[shape] {
            TypeShape::List { item, count } => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let index: usize = index.parse().ok().filter(|index| index < count)?;
                self.part(*item, at + index * self.bytes(*item), rest)
            }
            TypeShape::Record { members, .. } => {
                let path = path.strip_prefix('.')?;
                let end = path.find(['.', '[']).unwrap_or(path.len());
                let found = members.iter().find(|(name, ..)| *name == path[..end])?;
                self.part(found.2, at + found.1, &path[end..])
            }
            TypeShape::Plain(_) | TypeShape::Pointer(_) => None,
        }
    }
}

/// Reader of debugging information.
struct DebugReader<'d, 'a> {
    dwarf: &'d gimli::Dwarf<BytesSlice<'a>>,
    layout: SchedulerLayout,
}

impl<'a> DebugReader<'_, 'a> {
    fn units(&mut self) -> gimli::Result<()> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = self.dwarf.unit(header)?;
            let mut known = FxHashMap::default();
            let mut depth = 0;
            let mut entries = unit.entries();
            while let Some((step, entry)) = entries.next_dfs()? {
                depth += step;
                match entry.tag() {
                    // Static variables of functions, which are deeper, may share a name.
                    gimli::DW_TAG_variable if depth == 1 => {
                        self.variable(&unit, entry, &mut known)?;
                    }
                    gimli::DW_TAG_structure_type if depth == 1 => {
                        self.record(&unit, entry, &mut known)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn name(
        &self,
        unit: &CompileUnit<'a>,
        entry: &DebugEntry<'_, 'a>,
    ) -> gimli::Result<Option<String>> {
        let Some(value) = entry.attr_value(gimli::DW_AT_name)? else {
            return Ok(None);
        };
        let name = self.dwarf.attr_string(unit, value)?;
        Ok(Some(name.to_string_lossy().into_owned()))
    }

    fn variable(
        &mut self,
        unit: &CompileUnit<'a>,
        entry: &DebugEntry<'_, 'a>,
        known: &mut FxHashMap<UnitOffset, usize>,
    ) -> gimli::Result<()> {
        let Some(address) = self.address(unit, entry)? else {
            return Ok(());
        };
        // The definition of a declared variable refers to the declaration for its name.
        let declared = reference(entry, gimli::DW_AT_specification)?;
        let declared = declared.map(|at| unit.entry(at)).transpose()?;
        let mut name = self.name(unit, entry)?;
        let mut shape = reference(entry, gimli::DW_AT_type)?;
        if let Some(declared) = &declared {
            name = name.or(self.name(unit, declared)?);
            shape = shape.or(reference(declared, gimli::DW_AT_type)?);
        }
        if let (Some(name), Some(shape)) = (name, shape) {
            let shape = self.shape(unit, shape, known)?;
            let external = |entry: &DebugEntry<'_, 'a>| {
                let flag = entry.attr_value(gimli::DW_AT_external);
                flag.map(|flag| flag == Some(AttributeValue::Flag(true)))
            };
            // A variable of all files hides those of the same name that one file has for itself.
            let declared = declared.as_ref().map(external).transpose()?;
            if external(entry)? || declared == Some(true) {
                self.layout.variables.insert(name, (shape, address));
            } else {
                let known = self.layout.variables.entry(name);
                known.or_insert((shape, address));
            }
        }
        Ok(())
    }

    fn address(
        &self,
        unit: &CompileUnit<'a>,
        entry: &DebugEntry<'_, 'a>,
    ) -> gimli::Result<Option<usize>> {
        let Some(AttributeValue::Exprloc(place)) = entry.attr_value(gimli::DW_AT_location)? else {
            return Ok(None);
        };
        let address = match place.operations(unit.encoding()).next()? {
            Some(Operation::Address { address }) => address,
            Some(Operation::AddressIndex { index }) => self.dwarf.address(unit, index)?,
            _ => return Ok(None),
        };
        Ok(usize::try_from(address).ok())
    }

    fn record(
        &mut self,
        unit: &CompileUnit<'a>,
        entry: &DebugEntry<'_, 'a>,
        known: &mut FxHashMap<UnitOffset, usize>,
    ) -> gimli::Result<()> {
        if entry.attr_value(gimli::DW_AT_byte_size)?.is_some()
            && let Some(name) = self.name(unit, entry)?
            && !self.layout.records.contains_key(&name)
        {
            let shape = self.shape(unit, entry.offset(), known)?;
            self.layout.records.insert(name, shape);
        }
        Ok(())
    }

    /// Row of a type in the layout's shapes.
    fn shape(
        &mut self,
        unit: &CompileUnit<'a>,
        at: UnitOffset,
        known: &mut FxHashMap<UnitOffset, usize>,
    ) -> gimli::Result<usize> {
        if let Some(row) = known.get(&at) {
            return Ok(*row);
        }
        let row = self.layout.shapes.len();
        self.layout.shapes.push(TypeShape::Plain(0));
        known.insert(at, row);
        let entry = unit.entry(at)?;
        let bytes = entry.attr_value(gimli::DW_AT_byte_size)?;
        let bytes = bytes.and_then(|value| value.udata_value()).unwrap_or(0) as usize;
        let inner = reference(&entry, gimli::DW_AT_type)?;
        let inner = inner.map(|inner| self.shape(unit, inner, known));
        let inner = inner.transpose()?;
        let shape = match (entry.tag(), inner) {
            (gimli::DW_TAG_pointer_type, target) => TypeShape::Pointer(target),
            (gimli::DW_TAG_array_type, Some(item)) => self.list(unit, at, item)?,
            (gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type, _) => {
                let members = self.members(unit, at, known)?;
                TypeShape::Record { bytes, members }
            }
            // Names and qualifiers of a type: the type itself.
            (
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type,
                Some(inner),
            ) => {
                known.insert(at, inner);
                return Ok(inner);
            }
            _ => TypeShape::Plain(bytes),
        };
        self.layout.shapes[row] = shape;
        Ok(row)
    }

    fn members(
        &mut self,
        unit: &CompileUnit<'a>,
        at: UnitOffset,
        known: &mut FxHashMap<UnitOffset, usize>,
    ) -> gimli::Result<Vec<(String, usize, usize)>> {
        let mut found = Vec::new();
        let mut tree = unit.entries_tree(Some(at))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let member = child.entry();
            let place = member.attr_value(gimli::DW_AT_data_member_location)?;
            let place = place.and_then(|value| value.udata_value()).unwrap_or(0);
            let inner = reference(member, gimli::DW_AT_type)?;
            let bits = member.attr_value(gimli::DW_AT_bit_size)?.is_some();
            if let (Some(name), Some(inner), false) = (self.name(unit, member)?, inner, bits) {
                found.push((name, place as usize, self.shape(unit, inner, known)?));
            }
        }
        Ok(found)
    }

    /// Array with one shape inside another for each of its dimensions.
    fn list(
        &mut self,
        unit: &CompileUnit<'a>,
        at: UnitOffset,
        item: usize,
    ) -> gimli::Result<TypeShape> {
        let mut counts = Vec::new();
        let mut tree = unit.entries_tree(Some(at))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let range = child.entry();
            let number = |name| -> gimli::Result<Option<usize>> {
                let value = range.attr_value(name)?;
                Ok(value
                    .and_then(|value| value.udata_value())
                    .map(|n| n as usize))
            };
            let last = number(gimli::DW_AT_upper_bound)?;
            let count = number(gimli::DW_AT_count)?;
            counts.push(count.or(last.map(|last| last + 1)).unwrap_or(0));
        }
        let mut item = item;
        while counts.len() > 1 {
            let count = counts.pop().unwrap_or(0);
            self.layout.shapes.push(TypeShape::List { item, count });
            item = self.layout.shapes.len() - 1;
        }
        let count = counts.pop().unwrap_or(0);
        Ok(TypeShape::List { item, count })
    }
}

fn reference(entry: &DebugEntry<'_, '_>, name: gimli::DwAt) -> gimli::Result<Option<UnitOffset>> {
    Ok(match entry.attr_value(name)? {
        Some(AttributeValue::UnitRef(at)) => Some(at),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

    use super::*;
    use crate::library::Library;

    const TEXT: &str = "#include <scx/common.bpf.h>
struct row { u8 kind; u32 values[3]; struct { u64 deep; } inner; };
const volatile u16 limits[5];
struct row table[2][4];
struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, u32); __type(value, struct row); __uint(max_entries, 9); } seen SEC(\".maps\");
s32 BPF_STRUCT_OPS(x_select_cpu, struct task_struct *p, s32 prev, u64 flags) { return table[1][1].kind + limits[1] + prev; }
SCX_OPS_DEFINE(ops, .select_cpu = (void *)x_select_cpu, .name = \"x\");
";

    #[test]
    fn variables_structures_and_maps_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.bpf.c");
        std::fs::write(&file, TEXT).unwrap();
        let layout = SchedulerLayout::read(&Library::build(&file).unwrap().code).unwrap();
        let table = layout.variable("table").unwrap();
        assert_eq!(layout.record("row"), Some(24));
        assert_eq!(table.bytes, 2 * 4 * 24);
        let deep = layout.variable("table[1][2].inner.deep").unwrap();
        assert_eq!((deep.at - table.at, deep.bytes), ((4 + 2) * 24 + 16, 8));
        let value = layout.member("row", "values[2]").unwrap();
        assert_eq!(value, VariablePlace { at: 12, bytes: 4 });
        let counts = [
            "limits",
            "table",
            "table[1]",
            "table[1][3].values",
            "table[0][0]",
        ];
        assert_eq!(counts.map(|path| layout.count(path)), [5, 2, 4, 3, 0]);
        for absent in ["tables", "table[2][0]", "table[0][0].no", "limits.x"] {
            assert_eq!(layout.variable(absent), None, "{absent}");
        }
        let maps: Vec<_> = layout.maps().map(|(_, map)| map).collect();
        let hash = Declared {
            kind: 1,
            key: 4,
            value: 24,
            entries: 9,
            inner: None,
        };
        assert!(maps.contains(&hash), "{maps:?}");
    }
}

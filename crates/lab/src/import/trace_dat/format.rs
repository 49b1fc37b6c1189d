//! Formats of events: the texts of tracefs, `events/SYSTEM/EVENT/format` and `events/header_page`.

use super::cursor::ByteOrder;

/// Field of an event, or of the head of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub at: usize,
    pub size: usize,
    /// True if the field has the place of a text of variable length: its offset in the low 16 bits, and its length above.
    is_place: bool,
}

impl Field {
    /// Reads the field as a number.
    pub fn number(&self, data: &[u8], order: ByteOrder) -> Option<u64> {
        order.number(data, self.at, self.size)
    }

    /// Reads the field as a signed number of 32 bits.
    pub fn int(&self, data: &[u8], order: ByteOrder) -> Option<i32> {
        Some(self.number(data, order)? as u32 as i32)
    }

    /// Reads the field as a text, up to its first zero byte.
    pub fn text(&self, data: &[u8], order: ByteOrder) -> Option<String> {
        let (at, size) = if self.is_place {
            let place = self.number(data, order)? as usize;
            (place & 0xffff, place >> 16)
        } else {
            (self.at, self.size)
        };
        let bytes = data.get(at..at.checked_add(size)?)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Format of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFields {
    pub name: String,
    pub id: u64,
    pub fields: Vec<Field>,
}

impl EventFields {
    /// Parses a text of tracefs. The text of a page's head has fields only.
    pub fn parse(text: &str) -> Self {
        let mut format = Self::default();
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("name:") {
                name.trim().clone_into(&mut format.name);
            } else if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().unwrap_or(0);
            } else if let Some(field) = line.strip_prefix("field:") {
                format.fields.extend(parse_field(field));
            }
        }
        format
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Parses `char prev_comm[16]; offset:8; size:16; signed:0;`.
fn parse_field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declared = parts.next()?;
    let mut number = |name: &str| parts.next()?.strip_prefix(name)?.trim().parse().ok();
    let at = number("offset:")?;
    let size = number("size:")?;
    let name = declared.split('[').next()?;
    let name = match name.split_whitespace().last()? {
        // `__data_loc char[] name`
        "char" => declared.split_whitespace().last()?,
        name => name,
    };
    Some(Field {
        name: name.trim_start_matches('*').to_owned(),
        at,
        size,
        is_place: declared.starts_with("__data_loc"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names_places_and_texts() {
        let text = "name: sched_process_fork\nID: 297\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:char child_comm[4];\toffset:12;\tsize:4;\tsigned:0;\n\nprint fmt: \"x\"\n";
        let format = EventFields::parse(text);
        assert_eq!((&*format.name, format.id), ("sched_process_fork", 297));
        let names: Vec<&str> = format.fields.iter().map(|f| &*f.name).collect();
        assert_eq!(names, ["common_type", "comm", "child_comm"]);
        let data = [
            0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 3, 0, b'a', b'b', 0, b'c', b'x', b'y', b'z',
        ];
        let text = |name: &str| format.field(name).unwrap().text(&data, ByteOrder::Little);
        assert_eq!(text("comm").as_deref(), Some("xyz"));
        assert_eq!(text("child_comm").as_deref(), Some("ab"));
        assert_eq!(
            format
                .field("comm")
                .unwrap()
                .text(&data[..16], ByteOrder::Little),
            None
        );
    }
}

//! Required fields that a TOML file lacks, all at once, each with its meaning.
//!
//! Input: the text of a file, and the type that it is to be parsed into. Output: a message with all missing fields; `None` if
//! there are none. A parser stops at the first of them.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::toml_lines::table_line;

/// Largest number of missing fields that a message names.
const MOST_NAMED: usize = 100;

/// Returns a list of all required fields of `T` that TOML text lacks; `None` if it lacks none or is no TOML.
pub(crate) fn missing<T: JsonSchema>(text: &str) -> Option<String> {
    let file: toml::Table = toml::from_str(text).ok()?;
    let file = serde_json::to_value(file).ok()?;
    let schema = schemars::schema_for!(T).to_value();
    let mut found = Vec::new();
    Walk {
        schema: &schema,
        text,
        found: &mut found,
    }
    .visit(&schema, &file, &[]);
    let count = match found.len() {
        0 => return None,
        1 => "a field is missing".to_owned(),
        MOST_NAMED.. => format!("fields are missing, the first {MOST_NAMED} of which are"),
        n => format!("{n} fields are missing"),
    };
    Some(format!("{count}:\n    {}", found.join("\n    ")))
}

struct Walk<'a> {
    schema: &'a Value,
    text: &'a str,
    found: &'a mut Vec<String>,
}

impl<'a> Walk<'a> {
    /// Follows a reference to a definition; an optional value stands for its value.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..8 {
            let reference = schema.get("$ref").and_then(Value::as_str);
            let choices = ["anyOf", "oneOf"]
                .iter()
                .find_map(|key| schema.get(key)?.as_array());
            let is_null = |s: &Value| s.get("type").is_some_and(|kind| kind == "null");
            schema = match (reference, choices.map(Vec::as_slice)) {
                (Some(reference), _) => {
                    let pointer = reference.trim_start_matches('#');
                    let Some(found) = self.schema.pointer(pointer) else {
                        return schema;
                    };
                    found
                }
                (None, Some([value, null])) if is_null(null) && !is_null(value) => value,
                _ => return schema,
            };
        }
        schema
    }

    /// Adds the missing fields of a value. `path` is the names of the tables around it, with their numbers from 0 in arrays.
    fn visit(&mut self, schema: &'a Value, value: &Value, path: &[(&str, Option<usize>)]) {
        let schema = self.resolved(schema);
        let Some((properties, table)) = schema
            .get("properties")
            .and_then(Value::as_object)
            .zip(value.as_object())
        else {
            return;
        };
        let required = schema.get("required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        for name in names.filter(|name| !table.contains_key(*name)) {
            if self.found.len() == MOST_NAMED {
                return;
            }
            let line = self.line(name, properties, path);
            self.found.push(line);
        }
        for (name, value) in table {
            if self.found.len() == MOST_NAMED {
                return;
            }
            let Some(property) = properties.get(name) else {
                continue;
            };
            let below = |nth| [path, &[(name.as_str(), nth)]].concat();
            match (value.as_array(), self.resolved(property).get("items")) {
                (Some(rows), Some(items)) => {
                    for (nth, row) in rows.iter().enumerate() {
                        if self.found.len() == MOST_NAMED {
                            return;
                        }
                        self.visit(items, row, &below(Some(nth)));
                    }
                }
                _ => self.visit(property, value, &below(None)),
            }
        }
    }

    fn line(
        &self,
        name: &str,
        properties: &'a Map<String, Value>,
        path: &[(&str, Option<usize>)],
    ) -> String {
        let mut place = String::new();
        for (table, nth) in path {
            place += &match nth {
                Some(nth) => format!("{table} {}, ", nth + 1),
                None => format!("{table}, "),
            };
        }
        if let [(table, nth)] = path
            && let Some(line) = table_line(self.text, table, nth.unwrap_or(0))
        {
            place = format!("line {line}, {place}");
        }
        let property = properties.get(name).unwrap_or(&Value::Null);
        let meaning = property.get("description").and_then(Value::as_str);
        let meaning = meaning.unwrap_or_default().replace('\n', " ");
        let kind = self.kind(property);
        format!("{place}`{name}` ({kind}): {meaning}")
            .trim_end_matches([':', ' '])
            .to_owned()
    }

    /// Returns the type of a field, or its values if these are few words.
    fn kind(&self, property: &'a Value) -> String {
        let schema = self.resolved(property);
        let choices = schema.get("oneOf").or_else(|| schema.get("enum"));
        let words: Vec<String> = choices
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|choice| choice.get("const").unwrap_or(choice).as_str())
            .map(|word| format!("\"{word}\""))
            .collect();
        if !words.is_empty() {
            return words.join(", ");
        }
        let kind = schema.get("type").and_then(Value::as_str);
        let of_tables = |key| schema.get(key).is_some();
        match kind {
            Some("array") if of_tables("items") => "list".into(),
            Some("object") => "table".into(),
            Some("string") => "text".into(),
            Some(kind) => kind.into(),
            None => "value".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::Machine;
    use crate::workload::Workload;

    #[test]
    fn all_missing_fields_are_named_with_their_lines_and_meanings() {
        let text = "schema = \"countersteer.machine/1\"\nname = \"x\"\n\n[[core_type]]\nname = \"big\"\n\n[[core_type]]\n\
                    name = \"little\"\nfreq_ghz = 2\nl1d = { size_kib = 32 }\n";
        let message = Machine::parse("x.toml", text).unwrap_err().to_string();
        for part in [
            "x.toml: ",
            "fields are missing",
            "`title` (text): Description in one line, for lists.",
            "`linux` (\"symmetric\", \"smt-hybrid\", \"capacity\", \"energy-aware\"): ",
            "`memory` (list): Memory domains",
            "line 4, core_type 1, `freq_ghz` (number): Sustained frequency",
            "line 7, core_type 2, `window` (integer)",
            "core_type 2, l1d, `ways` (integer)",
        ] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        assert!(
            !message.contains("core_type 2, `freq_ghz`") && !message.contains("`hz`"),
            "{message}"
        );
    }

    #[test]
    fn other_faults_and_complete_files_have_no_such_list() {
        let machine = include_str!("../../../machines/core2-quad.toml");
        assert_eq!(super::missing::<Machine>(machine), None);
        assert_eq!(super::missing::<Machine>("a = ["), None);
        let typo = machine.replace("dispatch_width", "dispatch_with");
        let message = Machine::parse("x.toml", &typo).unwrap_err().to_string();
        assert!(
            message.contains("dispatch_with") && message.contains("x.toml:"),
            "{message}"
        );
        let message = Workload::parse("w.toml", "[[program]]\nname = \"a\"\n")
            .unwrap_err()
            .to_string();
        assert!(message.contains("w.toml"), "{message}");
    }
}

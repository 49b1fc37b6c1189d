//! Columns: rows to Arrow arrays and back, by name and type.
//!
//! Input: iterators over rows, or a batch read from a file. Output: a batch, or typed columns; a missing or mistyped column
//! is told by its name.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int8Array, ListArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

/// A list of pairs as it is held in memory.
pub(super) type Pairs = Vec<(Arc<str>, f64)>;

/// Builds a batch column by column.
#[derive(Default)]
pub(super) struct BatchBuilder {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl BatchBuilder {
    fn push(mut self, name: &str, nullable: bool, array: ArrayRef) -> Self {
        self.fields
            .push(Field::new(name, array.data_type().clone(), nullable));
        self.arrays.push(array);
        self
    }

    pub(super) fn u64(self, name: &str, values: impl Iterator<Item = u64>) -> Self {
        self.push(name, false, Arc::new(UInt64Array::from_iter_values(values)))
    }

    pub(super) fn u32(self, name: &str, values: impl Iterator<Item = u32>) -> Self {
        self.push(name, false, Arc::new(UInt32Array::from_iter_values(values)))
    }

    pub(super) fn maybe_u32(self, name: &str, values: impl Iterator<Item = Option<u32>>) -> Self {
        self.push(name, true, Arc::new(values.collect::<UInt32Array>()))
    }

    pub(super) fn maybe_u64(self, name: &str, values: impl Iterator<Item = Option<u64>>) -> Self {
        self.push(name, true, Arc::new(values.collect::<UInt64Array>()))
    }

    pub(super) fn i8(self, name: &str, values: impl Iterator<Item = i8>) -> Self {
        self.push(name, false, Arc::new(Int8Array::from_iter_values(values)))
    }

    pub(super) fn bool(self, name: &str, values: impl Iterator<Item = bool>) -> Self {
        self.push(
            name,
            false,
            Arc::new(values.map(Some).collect::<BooleanArray>()),
        )
    }

    pub(super) fn f64(self, name: &str, values: impl Iterator<Item = f64>) -> Self {
        self.push(
            name,
            false,
            Arc::new(Float64Array::from_iter_values(values)),
        )
    }

    pub(super) fn maybe_f64(self, name: &str, values: impl Iterator<Item = Option<f64>>) -> Self {
        self.push(name, true, Arc::new(values.collect::<Float64Array>()))
    }

    pub(super) fn text<T: AsRef<str>>(self, name: &str, values: impl Iterator<Item = T>) -> Self {
        self.push(name, false, Arc::new(StringArray::from_iter_values(values)))
    }

    pub(super) fn maybe_text<'a>(
        self,
        name: &str,
        values: impl Iterator<Item = Option<&'a str>>,
    ) -> Self {
        self.push(name, true, Arc::new(values.collect::<StringArray>()))
    }

    /// A list of structs of a text `key` and a number `value`.
    pub(super) fn pairs<'a>(
        self,
        name: &str,
        key: &str,
        value: &str,
        rows: impl Iterator<Item = &'a [(Arc<str>, f64)]> + Clone,
    ) -> Self {
        let fields = Fields::from(vec![
            Field::new(key, DataType::Utf8, false),
            Field::new(value, DataType::Float64, false),
        ]);
        let keys = StringArray::from_iter_values(rows.clone().flatten().map(|p| &*p.0));
        let values = Float64Array::from_iter_values(rows.clone().flatten().map(|p| p.1));
        let structs =
            StructArray::new(fields.clone(), vec![Arc::new(keys), Arc::new(values)], None);
        let item = Arc::new(Field::new("element", DataType::Struct(fields), false));
        let offsets = OffsetBuffer::from_lengths(rows.map(<[_]>::len));
        self.push(
            name,
            false,
            Arc::new(ListArray::new(item, offsets, Arc::new(structs), None)),
        )
    }

    pub(super) fn build(self, rows: usize) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.arrays, &options)
    }
}

/// The columns of a batch that was read.
pub(super) struct Columns<'a>(pub(super) &'a RecordBatch);

impl<'a> Columns<'a> {
    fn column(&self, name: &str) -> Result<&'a ArrayRef, String> {
        self.0
            .column_by_name(name)
            .ok_or_else(|| format!("column `{name}` is missing"))
    }

    fn typed<T>(&self, name: &str, cast: impl Fn(&'a ArrayRef) -> Option<T>) -> Result<T, String> {
        let column = self.column(name)?;
        cast(column).ok_or_else(|| {
            format!(
                "column `{name}` is {}, which it must not be",
                column.data_type()
            )
        })
    }

    pub(super) fn u64(&self, name: &str) -> Result<&'a PrimitiveArray<UInt64Type>, String> {
        self.typed(name, |c| c.as_primitive_opt())
    }

    pub(super) fn u32(&self, name: &str) -> Result<&'a PrimitiveArray<UInt32Type>, String> {
        self.typed(name, |c| c.as_primitive_opt())
    }

    /// A column that records of earlier versions lack.
    pub(super) fn newer_u32(
        &self,
        name: &str,
    ) -> Result<Option<&'a PrimitiveArray<UInt32Type>>, String> {
        self.0
            .column_by_name(name)
            .map(|_| self.u32(name))
            .transpose()
    }

    pub(super) fn i8(&self, name: &str) -> Result<&'a PrimitiveArray<Int8Type>, String> {
        self.typed(name, |c| c.as_primitive_opt())
    }

    pub(super) fn f64(&self, name: &str) -> Result<&'a PrimitiveArray<Float64Type>, String> {
        self.typed(name, |c| c.as_primitive_opt())
    }

    pub(super) fn bool(&self, name: &str) -> Result<&'a BooleanArray, String> {
        self.typed(name, |c| c.as_boolean_opt())
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a StringArray, String> {
        self.typed(name, |c| c.as_string_opt::<i32>())
    }

    pub(super) fn pairs(&self, name: &str) -> Result<PairColumn<'a>, String> {
        let list: &ListArray = self.typed(name, |c| c.as_list_opt::<i32>())?;
        let wrong = || {
            format!(
                "column `{name}` is {}, not a list of pairs",
                list.data_type()
            )
        };
        let structs = list
            .values()
            .as_struct_opt()
            .filter(|s| s.num_columns() == 2)
            .ok_or_else(wrong)?;
        let keys = structs.column(0).as_string_opt::<i32>().ok_or_else(wrong)?;
        let values = structs
            .column(1)
            .as_primitive_opt::<Float64Type>()
            .ok_or_else(wrong)?;
        Ok(PairColumn { list, keys, values })
    }
}

/// A column of lists of pairs.
pub(super) struct PairColumn<'a> {
    list: &'a ListArray,
    keys: &'a StringArray,
    values: &'a Float64Array,
}

impl PairColumn<'_> {
    pub(super) fn row(&self, row: usize, mut word: impl FnMut(&str) -> Arc<str>) -> Pairs {
        let offsets = self.list.value_offsets();
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        range
            .map(|i| (word(self.keys.value(i)), self.values.value(i)))
            .collect()
    }
}

pub(super) fn maybe<T: arrow_array::ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    row: usize,
) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

//! Kinds of columns: numbers, texts, CPU lists, pairs, and columns that may be null or missing in old records.
//!
//! Input: values of rows, or Arrow arrays. Output: Arrow arrays, or values of rows.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Float64Array, ListArray, PrimitiveArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields};
use countersteer_model::cpuset::CpuSet;

use super::columns::{BatchBuilder, ColumnStorage, RowReader, RowValues};
use super::words::Words;

/// Kind of column with one Arrow type. A kind itself is a [`ColumnStorage`] that is never null; inside [`Maybe`], the
/// column may be null.
pub(super) trait ColumnKind: Sized {
    /// Type of a value in a row.
    type Value;
    /// Type of a value when it is written.
    type Given<'a>;
    /// Arrow array in which values are stored.
    type Array: Array + 'static;

    fn give(value: &Self::Value) -> Self::Given<'_>;

    fn array<'a>(self, values: impl RowValues<Option<Self::Given<'a>>>) -> Self::Array;

    /// Returns the value in a row of the array. Fails with a sentence if the value is invalid.
    fn value(array: &Self::Array, row: usize, words: &mut Words) -> Result<Self::Value, String>;

    /// Returns the reason for which an array of the right type cannot be read; `None` if it can be.
    fn fault(_: &Self::Array) -> Option<&'static str> {
        None
    }

    /// Returns the array of the column with a name. Fails if the column is missing or has another type.
    fn find<'b>(self, name: &str, batch: &'b RecordBatch) -> Result<&'b Self::Array, String> {
        let column = batch.column_by_name(name);
        let column = column.ok_or_else(|| format!("column `{name}` is missing"))?;
        let wrong = |why: &str| Err(format!("column `{name}` is {}, {why}", column.data_type()));
        match column.as_any().downcast_ref() {
            Some(array) => Self::fault(array).map_or(Ok(array), wrong),
            None => wrong("which it must not be"),
        }
    }
}

impl<K: ColumnKind> ColumnStorage for K {
    type Value = K::Value;
    type Given<'a> = K::Given<'a>;

    fn give(self, value: &K::Value) -> K::Given<'_> {
        K::give(value)
    }

    fn write<'a>(self, name: &str, values: impl RowValues<K::Given<'a>>, batch: &mut BatchBuilder) {
        batch.push(name, false, self.array(values.map(Some)));
    }

    fn reader(self, name: &str, batch: &RecordBatch) -> Result<impl RowReader<K::Value>, String> {
        let array = self.find(name, batch)?;
        Ok(|row: usize, words: &mut Words| K::value(array, row, words))
    }
}

/// Column whose values may be null, which is read as `None`.
pub(super) struct Maybe<K>(pub(super) K);

impl<K: ColumnKind> ColumnStorage for Maybe<K> {
    type Value = Option<K::Value>;
    type Given<'a> = Option<K::Given<'a>>;

    fn give(self, value: &Self::Value) -> Self::Given<'_> {
        value.as_ref().map(K::give)
    }

    fn write<'a>(
        self,
        name: &str,
        values: impl RowValues<Self::Given<'a>>,
        batch: &mut BatchBuilder,
    ) {
        batch.push(name, true, self.0.array(values));
    }

    fn reader(
        self,
        name: &str,
        batch: &RecordBatch,
    ) -> Result<impl RowReader<Self::Value>, String> {
        let array = self.0.find(name, batch)?;
        Ok(|row: usize, words: &mut Words| {
            let value = array.is_valid(row).then(|| K::value(array, row, words));
            value.transpose()
        })
    }
}

/// Column that records of earlier versions lack; the second field is the value used for such records.
pub(super) struct Newer<C, V>(pub(super) C, pub(super) V);

impl<C: ColumnStorage<Value: Copy>> ColumnStorage for Newer<C, C::Value> {
    type Value = C::Value;
    type Given<'a> = C::Given<'a>;

    fn give(self, value: &C::Value) -> C::Given<'_> {
        self.0.give(value)
    }

    fn write<'a>(self, name: &str, values: impl RowValues<C::Given<'a>>, batch: &mut BatchBuilder) {
        self.0.write(name, values, batch);
    }

    fn reader(self, name: &str, batch: &RecordBatch) -> Result<impl RowReader<C::Value>, String> {
        let is_there = batch.column_by_name(name).is_some();
        let column = is_there.then(|| self.0.reader(name, batch)).transpose()?;
        Ok(move |row: usize, words: &mut Words| match &column {
            Some(column) => column(row, words),
            None => Ok(self.1),
        })
    }
}

/// Text column for queries, which is never read back.
pub(super) struct QueryText;

impl ColumnStorage for QueryText {
    type Value = ();
    type Given<'a> = &'a str;

    fn give(self, (): &()) -> &str {
        ""
    }

    fn write<'a>(self, name: &str, values: impl RowValues<&'a str>, batch: &mut BatchBuilder) {
        SharedText.write(name, values, batch);
    }

    fn reader(self, _: &str, _: &RecordBatch) -> Result<impl RowReader<()>, String> {
        Ok(|_: usize, _: &mut Words| Ok(()))
    }
}

pub(super) struct Number<T>(PhantomData<T>);

pub(super) const I8: Number<Int8Type> = Number(PhantomData);
pub(super) const U32: Number<UInt32Type> = Number(PhantomData);
pub(super) const U64: Number<UInt64Type> = Number(PhantomData);
pub(super) const F64: Number<Float64Type> = Number(PhantomData);

impl<T: ArrowPrimitiveType> Number<T> {
    /// Adds one column per name to a batch. `values` returns the values of a row in the order of the names, and
    /// may omit the last ones.
    pub(super) fn write_each<R>(
        self,
        names: &[Arc<str>],
        rows: &[R],
        values: impl Fn(&R) -> &[Option<T::Native>],
        batch: &mut BatchBuilder,
    ) {
        for (column, name) in names.iter().enumerate() {
            let of_row = |row| values(row).get(column).copied().flatten();
            Maybe(Self(PhantomData)).write(name, rows.iter().map(of_row), batch);
        }
    }

    /// Returns the arrays of the columns with these names. Fails if one is missing.
    pub(super) fn find_each<'b>(
        self,
        names: &[Arc<str>],
        batch: &'b RecordBatch,
    ) -> Result<Vec<&'b PrimitiveArray<T>>, String> {
        let column = |name: &Arc<str>| Self(PhantomData).find(name, batch);
        names.iter().map(column).collect()
    }
}

/// Returns the number in a row of the array; `None` if it is null.
pub(super) fn maybe<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    row: usize,
) -> Option<T::Native> {
    array.is_valid(row).then(|| array.value(row))
}

impl<T: ArrowPrimitiveType> ColumnKind for Number<T> {
    type Value = T::Native;
    type Given<'a> = T::Native;
    type Array = PrimitiveArray<T>;

    fn give(value: &T::Native) -> T::Native {
        *value
    }

    fn array<'a>(self, values: impl RowValues<Option<Self::Given<'a>>>) -> PrimitiveArray<T> {
        values.collect()
    }

    fn value(array: &PrimitiveArray<T>, row: usize, _: &mut Words) -> Result<T::Native, String> {
        Ok(array.value(row))
    }
}

pub(super) struct Bool;

impl ColumnKind for Bool {
    type Value = bool;
    type Given<'a> = bool;
    type Array = BooleanArray;

    fn give(value: &bool) -> bool {
        *value
    }

    fn array<'a>(self, values: impl RowValues<Option<Self::Given<'a>>>) -> BooleanArray {
        values.collect()
    }

    fn value(array: &BooleanArray, row: usize, _: &mut Words) -> Result<bool, String> {
        Ok(array.value(row))
    }
}

/// Text column; rows with equal text share one copy in memory.
pub(super) struct SharedText;

impl ColumnKind for SharedText {
    type Value = Arc<str>;
    type Given<'a> = &'a str;
    type Array = StringArray;

    fn give(value: &Arc<str>) -> &str {
        value
    }

    fn array<'a>(self, values: impl RowValues<Option<&'a str>>) -> StringArray {
        values.collect()
    }

    fn value(array: &StringArray, row: usize, words: &mut Words) -> Result<Arc<str>, String> {
        Ok(words.text(array.value(row)))
    }
}

/// Column of CPU sets, written as lists such as `0-3,8`.
pub(super) struct CpuList;

impl ColumnKind for CpuList {
    type Value = Arc<CpuSet>;
    type Given<'a> = &'a CpuSet;
    type Array = StringArray;

    fn give(value: &Arc<CpuSet>) -> &CpuSet {
        value
    }

    fn array<'a>(self, values: impl RowValues<Option<&'a CpuSet>>) -> StringArray {
        values.map(|set| set.map(CpuSet::to_string)).collect()
    }

    fn value(array: &StringArray, row: usize, words: &mut Words) -> Result<Arc<CpuSet>, String> {
        let list = array.value(row);
        let set = words.set(list);
        set.ok_or_else(|| format!("`{list}` is no CPU list"))
    }
}

/// Column of lists of pairs (text, number), with the names of the two fields.
pub(super) struct Pairs(pub(super) &'static str, pub(super) &'static str);

impl ColumnKind for Pairs {
    type Value = Vec<(Arc<str>, f64)>;
    type Given<'a> = &'a [(Arc<str>, f64)];
    type Array = ListArray;

    fn give(value: &Self::Value) -> Self::Given<'_> {
        value
    }

    fn array<'a>(self, values: impl RowValues<Option<Self::Given<'a>>>) -> ListArray {
        let rows = values.map(Option::unwrap_or_default);
        let fields = Fields::from(vec![
            Field::new(self.0, DataType::Utf8, false),
            Field::new(self.1, DataType::Float64, false),
        ]);
        let texts = StringArray::from_iter_values(rows.clone().flatten().map(|p| &*p.0));
        let numbers = Float64Array::from_iter_values(rows.clone().flatten().map(|p| p.1));
        let columns: Vec<ArrayRef> = vec![Arc::new(texts), Arc::new(numbers)];
        let structs = StructArray::new(fields.clone(), columns, None);
        let item = Arc::new(Field::new("element", DataType::Struct(fields), false));
        let offsets = OffsetBuffer::from_lengths(rows.map(<[_]>::len));
        ListArray::new(item, offsets, Arc::new(structs), None)
    }

    fn value(list: &ListArray, row: usize, words: &mut Words) -> Result<Self::Value, String> {
        let offsets = list.value_offsets();
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        let structs = list.values().as_struct();
        let texts = structs.column(0).as_string::<i32>();
        let numbers = structs.column(1).as_primitive::<Float64Type>();
        let pair = |i| (words.text(texts.value(i)), numbers.value(i));
        Ok(range.map(pair).collect())
    }

    fn fault(list: &ListArray) -> Option<&'static str> {
        let structs = list.values().as_struct_opt();
        let is_pair = |s: &StructArray| {
            s.num_columns() == 2
                && s.column(0).as_string_opt::<i32>().is_some()
                && s.column(1).as_primitive_opt::<Float64Type>().is_some()
        };
        (!structs.is_some_and(is_pair)).then_some("not a list of pairs")
    }
}

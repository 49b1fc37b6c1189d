//! Conversion of rows to Arrow arrays and back, by name and type of column.
//!
//! Input: rows, or a batch read from a file, and the list of columns that `columns!` defines for a type of rows. Output: a
//! batch, or rows. A missing or mistyped column is reported by its name. The storage of a column is its kind, in
//! [`super::kinds`].

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Field, Schema};

use super::words::Words;

/// Defines the columns of a type, one line each, in the order of the file: the column's name and its storage. In the first form,
/// the name is that of a field, unless another one follows `as`; `..` provides the fields without a column. In the second form,
/// a line ends with the expression for the written value. The expression at the end builds the value from the columns read, by
/// name. A field whose type defines columns itself is `several()`; these columns take its place.
///
/// ```text
/// columns! { SpanRow { step: U32, cpu as "core": U32, end_ns: Maybe(U64), weight: Newer(U32, 1024), phase: several() } }
///
/// columns! { |phase: &'a Phase| -> Phase {
///     phase: Text => phase.name,
///     since_ns: U64 => phase.since.0,
/// } => Phase { name: phase, since: Nanos(since_ns) } }
/// ```
macro_rules! columns {
    ($Row:ident { $($field:ident $(as $name:literal)?: $kind:expr),* $(, ..$rest:expr)? $(,)? }) => {
        impl ColumnSet for $Row {
            type Given<'a> = &'a Self;

            fn write<'a>(rows: impl RowValues<&'a Self>, batch: &mut BatchBuilder) {
                $({
                    let values = rows.clone().map(|row| $kind.give(&row.$field));
                    $kind.write(columns!(@name $field $($name)?), values, batch);
                })*
            }

            fn reader(batch: &RecordBatch) -> Result<impl RowReader<Self>, String> {
                $(let $field = $kind.reader(columns!(@name $field $($name)?), batch)?;)*
                Ok(move |row: usize, words: &mut Words| {
                    Ok(Self { $($field: $field(row, words)?,)* $(..$rest)? })
                })
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (|$value:ident: $Given:ty| -> $Type:ty {
        $($name:ident: $kind:expr => $given:expr),* $(,)?
    } => $made:expr) => {
        impl ColumnSet for $Type {
            type Given<'a> = $Given;

            fn write<'a>(values: impl RowValues<$Given>, batch: &mut BatchBuilder) {
                $($kind.write(stringify!($name), values.clone().map(|$value| $given), batch);)*
            }

            // A column that exists only for queries is read without being used.
            #[allow(unused_variables)]
            fn reader(batch: &RecordBatch) -> Result<impl RowReader<Self>, String> {
                $(let $name = $kind.reader(stringify!($name), batch)?;)*
                Ok(move |row: usize, words: &mut Words| {
                    $(let $name = $name(row, words)?;)*
                    Ok($made)
                })
            }
        }
    };
}
pub(super) use columns;

/// Type with columns; the macro `columns!` implements this trait.
pub(super) trait ColumnSet: Sized + 'static {
    /// Type of a value that is to be written.
    type Given<'a>;

    /// Adds the columns of these values to a batch.
    fn write<'a>(values: impl RowValues<Self::Given<'a>>, batch: &mut BatchBuilder);

    /// Finds the columns in a batch and returns a reader of rows. Fails with a sentence that names the missing or mistyped
    /// column.
    fn reader(batch: &RecordBatch) -> Result<impl RowReader<Self>, String>;
}

/// Storage of a field as one or several columns.
pub(super) trait ColumnStorage: Sized {
    /// Type of the field's value in a row.
    type Value;
    /// Type of the field's value when it is written.
    type Given<'a>;

    fn give(self, value: &Self::Value) -> Self::Given<'_>;

    /// Adds the column to a batch.
    fn write<'a>(
        self,
        name: &str,
        values: impl RowValues<Self::Given<'a>>,
        batch: &mut BatchBuilder,
    );

    /// Finds the column in a batch and returns a reader of its values. Fails with a sentence that names the column if it is
    /// missing or mistyped.
    fn reader(self, name: &str, batch: &RecordBatch)
    -> Result<impl RowReader<Self::Value>, String>;
}

/// Iterator over the values to write, one per row. It can be cloned, because pairs are iterated over more than once.
pub(super) trait RowValues<T>: Iterator<Item = T> + Clone {}

impl<T, I: Iterator<Item = T> + Clone> RowValues<T> for I {}

/// Function that reads the value of a row.
pub(super) trait RowReader<T>: Fn(usize, &mut Words) -> Result<T, String> {}

impl<T, F: Fn(usize, &mut Words) -> Result<T, String>> RowReader<T> for F {}

/// Storage of a field whose type defines columns with names of their own.
pub(super) struct Several<T>(PhantomData<T>);

pub(super) const fn several<T>() -> Several<T> {
    Several(PhantomData)
}

impl<T: for<'a> ColumnSet<Given<'a> = &'a T>> ColumnStorage for Several<T> {
    type Value = T;
    type Given<'a> = &'a T;

    fn give(self, value: &T) -> &T {
        value
    }

    fn write<'a>(self, _: &str, values: impl RowValues<&'a T>, batch: &mut BatchBuilder) {
        T::write(values, batch);
    }

    fn reader(self, _: &str, batch: &RecordBatch) -> Result<impl RowReader<T>, String> {
        T::reader(batch)
    }
}

/// Batch to which columns are added one by one.
#[derive(Default)]
pub(super) struct BatchBuilder {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl BatchBuilder {
    pub(super) fn push(&mut self, name: &str, nullable: bool, array: impl Array + 'static) {
        let field = Field::new(name, array.data_type().clone(), nullable);
        self.fields.push(field);
        self.arrays.push(Arc::new(array));
    }

    pub(super) fn build(self, rows: usize) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.arrays, &options)
    }
}

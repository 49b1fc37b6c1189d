//! Tables that Arrow libraries read without copies.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::raised;

/// Rows and columns; `polars.from_arrow`, `pyarrow.table`, `pandas.DataFrame.from_arrow` and duckdb accept it directly.
#[pyclass(frozen, module = "countersteer")]
pub struct Table {
    batches: Vec<RecordBatch>,
}

impl Table {
    /// Table of batches of one schema; at least one, which defines the columns.
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        Self { batches }
    }

    /// Table of columns of one length, with their names.
    pub fn of<N: AsRef<str>>(columns: impl IntoIterator<Item = (N, ArrayRef)>) -> PyResult<Self> {
        let columns = columns
            .into_iter()
            .map(|(name, column)| (name, column, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).map_err(raised)?;
        Ok(Self::new(vec![batch]))
    }
}

/// Column of floating-point numbers.
pub fn floats(values: impl Iterator<Item = impl Into<Option<f64>>>) -> ArrayRef {
    Arc::new(values.map(Into::into).collect::<Float64Array>())
}

/// Column of numbers of things.
pub fn counts(values: impl Iterator<Item = impl Into<Option<u64>>>) -> ArrayRef {
    Arc::new(values.map(Into::into).collect::<UInt64Array>())
}

/// Column of texts.
pub fn texts<'a>(values: impl Iterator<Item = impl Into<Option<&'a str>>>) -> ArrayRef {
    Arc::new(values.map(Into::into).collect::<StringArray>())
}

#[pymethods]
impl Table {
    /// Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore a requested schema.
        let _ = requested_schema;
        let first = self.batches.first();
        let schema = first
            .map(RecordBatch::schema)
            .ok_or_else(|| raised(anyhow::anyhow!("the table has no columns")))?;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let first = self.batches.first();
        let fields = first.map(|batch| batch.schema_ref().fields().clone());
        fields
            .iter()
            .flat_map(|fields| fields.iter())
            .map(|field| field.name().clone())
            .collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn __repr__(&self) -> String {
        format!(
            "Table({} rows: {})",
            self.__len__(),
            self.columns().join(", ")
        )
    }
}

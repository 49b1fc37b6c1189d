//! Packed packets: by zlib or by zstd, up to a number of bytes.

use std::io::Read;

use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_zlib_with_limit};

/// Unpacks packets that zlib packed.
pub fn zlib(packed: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    decompress_to_vec_zlib_with_limit(packed, limit).map_err(|e| match e.status {
        TINFLStatus::HasMoreOutput => too_many(most),
        _ => format!("its zlib data is damaged: {e}"),
    })
}

/// Unpacks packets that zstd packed.
pub fn zstd(packed: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let damaged = |e: std::io::Error| format!("its zstd data is damaged: {e}");
    let reader = zstd::stream::read::Decoder::with_buffer(packed).map_err(damaged)?;
    let mut unpacked = Vec::new();
    let read = reader.take(most + 1).read_to_end(&mut unpacked);
    if read.map_err(damaged)? as u64 > most {
        return Err(too_many(most));
    }
    Ok(unpacked)
}

fn too_many(most: u64) -> String {
    format!("a packed packet of it has more than {most} bytes unpacked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_bytes_are_unpacked_than_are_asked_for() {
        let plain = [7; 5000];
        let by_zlib = miniz_oxide::deflate::compress_to_vec_zlib(&plain, 6);
        let by_zstd = zstd::stream::encode_all(&plain[..], 1).unwrap();
        assert_eq!(zlib(&by_zlib, 5000).unwrap(), plain);
        assert_eq!(zstd(&by_zstd, 5000).unwrap(), plain);
        for read in [zlib(&by_zlib, 4999), zstd(&by_zstd, 4999)] {
            let why = read.unwrap_err();
            assert!(why.contains("more than 4999 bytes unpacked"), "{why}");
        }
    }
}

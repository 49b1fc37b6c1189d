//! Binary form of a signature, which is the contents of an ELF note.
//!
//! Layout, little-endian: magic, version, number of phases, length of the name; instructions; the name; the matrix of the whole
//! run; each phase's fraction in 65,535ths and its matrix; a checksum over all preceding bytes.

use std::hash::Hasher;

use countersteer_model::signature::{SIZES, WAYS};

use super::{Carried, MOST_NAME, MOST_PHASES, Matrix, SCHEMA, SignaturePhase};

/// Owner name of the note.
pub const OWNER: &[u8] = b"Countersteer";
/// Type of the note.
pub const TYPE: u32 = 1;
/// First bytes of the contents.
const MAGIC: [u8; 4] = *b"CSIG";
/// Version of the layout.
const VERSION: u8 = 1;
/// Size of a matrix in bytes.
const MATRIX: usize = 2 * SIZES * WAYS.len();
/// Number of bytes before the name.
const FRONT: usize = 16;
/// Limit on the size of a signature, in bytes.
pub const MOST_BYTES: usize = FRONT + MOST_NAME + MATRIX + MOST_PHASES * (2 + MATRIX) + 8;

fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = twox_hash::XxHash64::with_seed(0);
    hash.write(bytes);
    hash.finish()
}

/// Encodes a signature as the contents of a note.
#[must_use]
pub fn encode(carried: &Carried) -> Vec<u8> {
    let mut name = carried.name.as_bytes();
    name = &name[..name.len().min(MOST_NAME)];
    let phases = &carried.phases[..carried.phases.len().min(MOST_PHASES)];
    let mut bytes = Vec::with_capacity(MOST_BYTES);
    bytes.extend(MAGIC);
    bytes.extend([VERSION, phases.len() as u8, name.len() as u8, 0]);
    bytes.extend(carried.instructions.to_le_bytes());
    bytes.extend(name);
    put(&mut bytes, &carried.misses);
    for phase in phases {
        let share = (phase.share * f64::from(u16::MAX)).round() as u16;
        bytes.extend(share.to_le_bytes());
        put(&mut bytes, &phase.misses);
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn put(bytes: &mut Vec<u8>, matrix: &Matrix) {
    bytes.extend(matrix.iter().flatten().flat_map(|cell| cell.to_le_bytes()));
}

/// Decodes a signature from the contents of a note.
///
/// # Errors
/// Fails with a description of the first defect in the bytes.
pub fn decode(bytes: &[u8]) -> Result<Carried, String> {
    let wrong = |why: &str| Err(format!("the signature inside {why}"));
    let [m0, m1, m2, m3, version, phases, name, _, rest @ ..] = bytes else {
        return wrong("is cut short");
    };
    if [*m0, *m1, *m2, *m3] != MAGIC {
        return wrong("is none");
    }
    if *version != VERSION {
        return wrong("is of another version of steer; embed it again");
    }
    let (phases, name) = (usize::from(*phases), usize::from(*name));
    let length = FRONT + name + MATRIX + phases * (2 + MATRIX) + 8;
    if phases > MOST_PHASES || name > MOST_NAME || bytes.len() != length {
        return wrong("is not as long as it says");
    }
    let (summed, sum) = bytes.split_at(length - 8);
    if sum != checksum(summed).to_le_bytes() {
        return wrong("is damaged: its checksum is wrong");
    }
    let mut words = rest[8 + name..]
        .as_chunks::<2>()
        .0
        .iter()
        .map(|b| u16::from_le_bytes(*b));
    let mut next = || words.next().unwrap_or_default();
    let misses = matrix(&mut next);
    let phases = (0..phases).map(|_| {
        let share = f64::from(next()) / f64::from(u16::MAX);
        let misses = matrix(&mut next);
        SignaturePhase { share, misses }
    });
    let carried = Carried {
        schema: SCHEMA.into(),
        name: String::from_utf8_lossy(&rest[8..8 + name]).into_owned(),
        inputs: Vec::new(),
        instructions: u64::from_le_bytes(std::array::from_fn(|at| rest[at])),
        misses,
        phases: phases.collect(),
    };
    carried.check()?;
    Ok(carried)
}

fn matrix(next: &mut impl FnMut() -> u16) -> Matrix {
    let mut matrix = Matrix::default();
    matrix.iter_mut().flatten().for_each(|cell| *cell = next());
    matrix
}

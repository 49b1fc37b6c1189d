//! Layout of the raw files that the instrumentation plugin writes while the program runs.
//!
//! Stage: capture -> profiler. Both sides use this crate, so they always agree. A version word detects a plugin of another
//! build. Everything is a native-endian `u64` word in a file that the plugin maps shared, so the counts survive any end of the
//! program.
//!
//! - `control`: one page, one per recording, written by every process of the tree.
//! - `NNNNNN.raw`: one per thread: a header page, then [`MAX_WINDOWS`] records of [`record::WORDS`] words.
//! - `command`: NUL-terminated arguments that run a program under this recording; the plugin puts them before an exec.

/// Version of the layout. It includes the size of a record, which changes most often.
pub const VERSION: u64 = 3 << 32 | record::WORDS as u64;
/// First word of the control file (`CSTRCTRL`).
pub const CONTROL_MAGIC: u64 = 0x4353_5452_4354_524c;
/// First word of a thread's file (`CSTRTHRD`).
pub const THREAD_MAGIC: u64 = 0x4353_5452_5448_5244;
/// Bytes of the control file, and of the header of a thread's file.
pub const PAGE: usize = 4096;
/// Windows in a thread's file. If they run out, pairs are merged and windows become twice as long.
pub const MAX_WINDOWS: usize = 1024;
/// Instructions of a window before any doubling.
pub const FIRST_WINDOW: u64 = 1_000_000;
/// Name of the control file in the scratch directory.
pub const CONTROL_FILE: &str = "control";
/// Name of the file with the command that wraps an exec.
pub const COMMAND_FILE: &str = "command";
/// Name of the socket to which threads send their events, if requested.
pub const STREAM_SOCKET: &str = "stream";
/// Suffix of the lifeline socket of a live program. The end of its connection ends the program's processes.
pub const LIFELINE_SUFFIX: &str = "-life";
/// Variable by which QEMU's C library allocates in one arena only. Each arena is a mapping, made when a
/// thread first allocates. That time differs from run to run, and the program's own mappings go around the arenas.
pub const ARENAS: &str = "MALLOC_ARENA_MAX";
/// Value of [`ARENAS`] for QEMU. The program keeps its own value, or none.
pub const ONE_ARENA: &str = "1";
/// File name extension of a thread's file.
pub const THREAD_SUFFIX: &str = "raw";

/// Largest number of runnable threads that is distinguished.
pub const RUNNABLE_LEVELS: usize = 16;
/// Instruction windows for which parallelism is measured.
pub const ILP_WINDOWS: [usize; 6] = [16, 32, 64, 128, 256, 512];
/// Cache sizes, in lines, whose misses count as long.
pub const MLP_LINES: [u64; 7] = [1 << 9, 1 << 11, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 20];
/// Buckets of the stack distances: all below 2^28 lines.
pub const STACK_BUCKETS: usize = 208;
/// Stack distance below which distances are resolved in the parallelism samples only.
pub const NEAR_LINES: u64 = 128;
/// Buckets of the distances below [`NEAR_LINES`].
pub const NEAR_BUCKETS: usize = 40;
/// Buckets of the reuse times: all below 2^36 accesses.
pub const REUSE_BUCKETS: usize = 272;

/// Buckets of the stack distances of [`Reached`]: all below 2^20.
pub const REACH_BUCKETS: usize = 144;
/// Stack distance of [`Reached`] below which distances are counted in the samples only.
pub const REACH_NEAR: u64 = 64;

/// Random groups of the sampled lines, whose differences show the error of the sample.
pub const GROUPS: usize = 8;

/// Depth of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// All branches and far touches; near touches and dependencies in captures.
    #[default]
    Exact,
    /// Windows and a sample of the lines.
    Sampled,
    /// Everything like in captures, for validation.
    Reference,
}

impl Measure {
    /// Returns the word by which the plugin's argument `measure=` names it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Sampled => "sampled",
            Self::Reference => "reference",
        }
    }

    /// Returns the one named by a word.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Exact, Self::Sampled, Self::Reference]
            .into_iter()
            .find(|of| of.word() == word)
    }
}

/// Kind of item, beside data lines, whose stack distances are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    CodeLines,
    BranchTargets,
    CodePages,
    DataPages,
}

/// Number of kinds of [`Reached`].
pub const REACHED: usize = 4;

/// Words of the control file.
pub mod control {
    /// [`super::CONTROL_MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`] of the profiler.
    pub const VERSION: usize = 1;
    /// Number of instructions after which the recording ends.
    pub const LIMIT: usize = 2;
    /// Instructions executed so far by all threads; the clock of the recording.
    pub const INSTRUCTIONS: usize = 3;
    /// Nonzero once the limit was reached.
    pub const STOP: usize = 4;
    /// Number of thread files created so far.
    pub const THREADS: usize = 5;
    /// Threads that are neither in a system call nor ended, including those of [`LOST`].
    pub const ACTIVE: usize = 6;
    /// Number of times that the plugin was loaded.
    pub const LOADED: usize = 7;
    /// Version of a plugin that refused to work with the profiler's.
    pub const REFUSED_VERSION: usize = 8;
    /// PID of the last process that loaded the plugin or is recording.
    pub const LAST_PID: usize = 9;
    /// Number of threads known to have been killed while they executed; only the profiler writes this word.
    pub const LOST: usize = 10;
    /// Notes of each kind of caveat, in the order of `CaveatKind::ALL`: [`CAVEAT_WORDS`] words each. The first word is the
    /// number of occurrences. The others hold the file name of the first occurrence, padded with zeros.
    pub const CAVEATS: usize = 16;
    pub const CAVEAT_WORDS: usize = 64;
}

/// Words of a thread file's header.
pub mod header {
    /// [`super::THREAD_MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Order of creation within the recording, from 1.
    pub const ORDINAL: usize = 2;
    /// PID of the thread's process.
    pub const PID: usize = 3;
    /// Number of complete windows; the record after them is the unfinished one.
    pub const WINDOWS: usize = 4;
    /// Instructions of a complete window.
    pub const WINDOW_LENGTH: usize = 5;
    /// The recording's instruction count when the thread started.
    pub const START: usize = 6;
    /// Ending of the thread: 0 still running, killed, or ended by another thread of its process, otherwise [`super::ENDED_SELF`],
    /// [`super::ENDED_EXEC`] or [`super::ENDED_PROCESS`].
    pub const ENDED: usize = 7;
    /// Nonzero while the thread does not count in [`super::control::ACTIVE`]: in a system call, before its first instruction and
    /// after its last.
    pub const IN_CALL: usize = 8;
    /// Number of words in use.
    pub const WORDS: usize = 9;
}

/// Value of [`header::ENDED`] for a thread that ran to its end.
pub const ENDED_SELF: u64 = 1;
/// Value of [`header::ENDED`] for a process that executed another program, which has a file of its own.
pub const ENDED_EXEC: u64 = 2;
/// Value of [`header::ENDED`] for a thread that ended its whole process. QEMU says nothing about the other threads.
pub const ENDED_PROCESS: u64 = 3;

/// Words of a window's record; every word except [`record::STAMP`] is a sum.
pub mod record {
    use countersteer_model::profile::{CONFLICT_WAYS, Operation};

    use super::{
        ILP_WINDOWS, MLP_LINES, NEAR_BUCKETS, REACH_BUCKETS, REACHED, REUSE_BUCKETS,
        RUNNABLE_LEVELS, STACK_BUCKETS,
    };

    /// The recording's instruction count when the window was last written.
    pub const STAMP: usize = 0;
    pub const INSTRUCTIONS: usize = 1;
    pub const LOADS: usize = 2;
    pub const STORES: usize = 3;
    pub const BRANCHES: usize = 4;
    pub const FP: usize = 5;
    pub const SIMD: usize = 6;
    pub const MISPREDICTED: usize = 7;
    /// First touches of a line.
    pub const COLD: usize = 8;
    /// Instructions during which 1, 2, ... threads were runnable, including this one; the last word counts that many or more.
    pub const RUNNABLE: usize = 9;
    /// Instructions in the parallelism samples.
    pub const SAMPLED: usize = RUNNABLE + RUNNABLE_LEVELS;
    /// Cycles that the samples take, one word per entry of [`ILP_WINDOWS`].
    pub const ILP_CYCLES: usize = SAMPLED + 1;
    /// Cycles with slow loads, then cycles with slow loads and operations; indexed like [`ILP_CYCLES`].
    pub const LOAD_CYCLES: usize = ILP_CYCLES + ILP_WINDOWS.len();
    pub const OPERATION_CYCLES: usize = LOAD_CYCLES + ILP_WINDOWS.len();
    /// Operations in the samples, one word per [`Operation`].
    pub const OPERATIONS: usize = OPERATION_CYCLES + ILP_WINDOWS.len();
    /// Pairs of compare and branch, and taken branches, in the samples.
    pub const FUSED: usize = OPERATIONS + Operation::ALL.len();
    pub const TAKEN: usize = FUSED + 1;
    /// Mispredictions in the samples, and their resolution cycles: with unit latency, with slow loads, with slow loads and
    /// operations.
    pub const RESOLVED: usize = TAKEN + 1;
    pub const RESOLUTION: usize = RESOLVED + 1;
    /// Touches beyond each of [`MLP_LINES`] that continue a stream.
    pub const STREAMED: usize = RESOLUTION + 3;
    /// Touches that caches with 64 sets and 1, 2, ... ways miss, but hit with one more way. The last word counts those that all
    /// miss.
    pub const CONFLICTS: usize = STREAMED + MLP_LINES.len();
    /// Long misses in the samples, one word per entry of [`MLP_LINES`].
    pub const MLP_MISSES: usize = CONFLICTS + CONFLICT_WAYS;
    /// Serial rounds of misses in the samples: for each of [`MLP_LINES`], one word per entry of [`ILP_WINDOWS`].
    pub const MLP_ROUNDS: usize = MLP_MISSES + MLP_LINES.len();
    /// Touches at a distance below [`super::NEAR_LINES`].
    pub const NEAR: usize = MLP_ROUNDS + MLP_LINES.len() * ILP_WINDOWS.len();
    /// Touches by stack distance bucket, from [`super::NEAR_LINES`] up.
    pub const STACK: usize = NEAR + 1;
    /// Touches by reuse time bucket, for distances from [`super::NEAR_LINES`] up.
    pub const REUSE: usize = STACK + STACK_BUCKETS;
    /// Touches at smaller distances, by stack distance bucket, in the samples.
    pub const NEAR_STACK: usize = REUSE + REUSE_BUCKETS;
    /// Touches at smaller distances, by reuse time bucket, in the samples.
    pub const NEAR_REUSE: usize = NEAR_STACK + NEAR_BUCKETS;
    /// Instructions during which all distances of [`super::Reached`] were counted.
    pub const REACH_SAMPLED: usize = NEAR_REUSE + REUSE_BUCKETS;
    /// Uses by stack distance bucket, then first uses, for each kind of [`super::Reached`]: [`super::REACH_BUCKETS`] and one
    /// words each.
    pub const REACH: usize = REACH_SAMPLED + 1;
    /// Instructions whose branches were all predicted, outside of the windows of a sample. Their mispredictions are
    /// [`MISPREDICTED`].
    pub const PREDICTED: usize = REACH + REACHED * (REACH_BUCKETS + 1);
    /// Mispredictions of a simple predictor in all other instructions.
    pub const SIMPLE: usize = PREDICTED + 1;
    /// Windows in which mispredictions are sampled, and the instructions of their counted parts.
    pub const WINDOWS: usize = SIMPLE + 1;
    pub const WINDOWED: usize = WINDOWS + 1;
    /// Sums over the counted parts of the windows: mispredictions, those of the simple predictor, the squares of both, and the
    /// products of both.
    pub const WINDOW_SUMS: usize = WINDOWED + 1;
    /// Mispredictions in the parts before the counted ones, and those of the simple predictor.
    pub const BEFORE: usize = WINDOW_SUMS + 5;
    /// Instructions that [`CONFLICTS`] stands for.
    pub const MODELLED: usize = BEFORE + 2;
    /// Touches beyond each of [`MLP_LINES`] of which [`STREAMED`] counts those that continue a stream.
    pub const STREAMABLE: usize = MODELLED + 1;
    /// Parallelism samples, and the sums of the squares of their [`ILP_CYCLES`].
    pub const CAPTURES: usize = STREAMABLE + MLP_LINES.len();
    pub const ILP_SQUARES: usize = CAPTURES + 1;
    /// Touches beyond each of [`MLP_LINES`], for each random group of sampled lines.
    pub const GROUPS: usize = ILP_SQUARES + ILP_WINDOWS.len();
    /// Touches of a sample of the lines while several threads of the process run: all, far ones, those of them to lines that other threads
    /// use, first ones, and those of them to lines that other threads touched before.
    pub const OBSERVED: usize = GROUPS + super::GROUPS * MLP_LINES.len();
    pub const SHARABLE: usize = OBSERVED + 1;
    pub const SHARED: usize = SHARABLE + 1;
    pub const FIRST: usize = SHARED + 1;
    pub const TOUCHED_BEFORE: usize = FIRST + 1;
    /// Touches of lines that another thread wrote since this thread's last touch, by stack distance bucket.
    pub const INVALIDATED: usize = TOUCHED_BEFORE + 1;
    pub const WORDS: usize = INVALIDATED + STACK_BUCKETS;
}

/// Bytes of a thread's file.
pub const THREAD_BYTES: usize = PAGE + MAX_WINDOWS * record::WORDS * 8;

/// Adds record `from` to the preceding record `into`.
pub fn add_record(into: &mut [u64], from: &[u64]) {
    for (sum, part) in into.iter_mut().zip(from).skip(record::STAMP + 1) {
        *sum += part;
    }
    into[record::STAMP] = from[record::STAMP];
}

//! Errors of commands whose number of threads is sought.

#[derive(Debug, thiserror::Error)]
pub(crate) enum ThreadsError {
    #[error(
        "`{command}` has no `{{n}}`, which stands for the number of threads: write it where the command takes that number, as in `-t {{n}}`, or \
         give it by the environment: --env OMP_NUM_THREADS={{n}}"
    )]
    NoPlace { command: String },
    #[error(
        "`{command}` has no `{{chunk}}`, which stands for the chunking of loops: write it where the command takes the chunking, or give it \
         by the environment: --env OMP_SCHEDULE={{chunk}}"
    )]
    NoChunkPlace { command: String },
    #[error("--env `{given}` is no assignment; write NAME=VALUE")]
    NoAssignment { given: String },
    #[error(
        "`{command}` wrote something else than `{first}`, so times of different work would be compared; without --check-output what \
         it writes does not count"
    )]
    OtherAnswer { command: String, first: String },
    #[error("cannot keep what the command writes: {0}; omit --check-output")]
    Output(std::io::Error),
}

//! What all subcommands share: how they fail, what they may ask of the system.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::process::ExitCode;

/// Why a subcommand ends early: a sentence, and the exit status that goes with it.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// The thing that was tried or checked is bad: exit status 1.
    pub fn bad(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into() }
    }

    /// Wrong usage, or the system refused something: exit status 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into() }
    }

    /// The exit status.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Errors of the library and of the system are usage or input/output: exit status 2.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::usage(error.to_string())
    }
}

/// A number that differs from run to run. Not for secrets.
pub fn random_u64() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

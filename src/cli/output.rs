//! What all subcommands share: how they fail, what they may ask of the system.

use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

/// Why a subcommand ends early: a sentence, and the exit status that goes with it.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    /// Nothing if there is nobody to tell.
    message: Option<String>,
}

impl Failure {
    /// The thing that was tried or checked is bad: exit status 1.
    pub fn bad(message: impl Into<String>) -> Self {
        Self { status: 1, message: Some(message.into()) }
    }

    /// Wrong usage, or the system refused something: exit status 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: Some(message.into()) }
    }

    /// Whoever read standard output has had enough: an end like any other.
    pub fn unread() -> Self {
        Self { status: 0, message: None }
    }

    /// Tells it on standard error.
    pub fn tell(&self) {
        if let Some(message) = &self.message {
            complain(message);
        }
    }

    /// Exit status and message, for another process that is to tell it.
    pub fn parts(&self) -> (u8, &str) {
        (self.status, self.message.as_deref().unwrap_or_default())
    }

    /// The exit status.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

/// Errors of the library and of the system are usage or input/output: exit status 2.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::usage(error.to_string())
    }
}

/// Writes a line to standard output, where a person or a program may be waiting for it.
///
/// # Errors
/// Standard output is closed, or its disk full.
pub fn print(line: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{line}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::unread()),
        Err(error) => Err(Failure::usage(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Tells on standard error. Nobody is left to tell if that cannot be written, but the exit status
/// counts all the same.
pub fn complain(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "uroce: {message}");
}

/// A number that differs from run to run. Not for secrets.
pub fn random_u64() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// A bar on standard error if that is a terminal.
pub fn progress(length: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{{wide_bar}} {{pos}}/{{len}} {what}, {{elapsed}}, {{eta}} left");
    let style = ProgressStyle::with_template(&template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

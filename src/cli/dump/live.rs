//! Input that is still being written: a pipe from a running capture, a terminal.
//!
//! What has been read is shown before more is waited for, and Ctrl-C ends it like the end of a file.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use super::super::output::Failure;
use super::interrupt::{Interrupt, Ready};
use super::output::Output;

/// The most bytes that the writer, whom the same Ctrl-C has reached, may still have: more than a pipe
/// and its own buffers hold.
const LAST_WORDS: usize = 1 << 20;
/// A pause after which it has nothing more.
const SILENCE: Duration = Duration::from_millis(200);

/// Standard output, shared by who reads and who shows.
pub struct Shared<'s, 'a> {
    /// The output.
    pub output: RefCell<&'s mut Output<'a>>,
    /// Why it could not be written to while something was waited for.
    failure: RefCell<Option<Failure>>,
    is_interrupted: Cell<bool>,
}

impl<'s, 'a> Shared<'s, 'a> {
    /// Nothing has happened yet.
    pub fn new(output: &'s mut Output<'a>) -> Self {
        let (failure, is_interrupted) = (RefCell::default(), Cell::default());
        Self { output: RefCell::new(output), failure, is_interrupted }
    }

    /// Whether Ctrl-C has ended the input: that it is cut says nothing then.
    ///
    /// # Errors
    /// The output could not be written, which has ended it too.
    pub fn is_interrupted(&self) -> Result<bool, Failure> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(self.is_interrupted.get()),
        }
    }
}

/// A reader of such input.
pub struct Live<'l, 's, 'a, R> {
    read: R,
    shared: &'l Shared<'s, 'a>,
    interrupt: Interrupt,
    /// How many bytes of the writer's last words are left, once the end was wished for.
    last_words: Option<usize>,
}

impl<'l, 's, 'a, R: Read + AsFd> Live<'l, 's, 'a, R> {
    /// Catches signals as long as it lives.
    pub fn new(read: R, shared: &'l Shared<'s, 'a>) -> io::Result<Self> {
        Ok(Self { read, shared, interrupt: Interrupt::new()?, last_words: None })
    }

    /// Whether there is something to read; if not, nothing more comes.
    fn wait(&mut self) -> io::Result<bool> {
        let mut ready = self.interrupt.wait_readable(self.read.as_fd(), 0)?;
        if ready == Ready::Nothing {
            let flushed = self.shared.output.borrow_mut().flush();
            if let Err(failure) = flushed {
                *self.shared.failure.borrow_mut() = Some(failure);
                return Ok(false);
            }
        }
        while ready == Ready::Nothing {
            ready = self.interrupt.wait_readable(self.read.as_fd(), -1)?;
        }
        if ready == Ready::Interrupted {
            self.shared.is_interrupted.set(true);
            self.last_words = Some(LAST_WORDS);
        }
        Ok(true)
    }
}

impl<R: Read + AsFd> Read for Live<'_, '_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.last_words.is_none() && !self.wait()? {
            return Ok(0);
        }
        let Some(left) = self.last_words else { return self.read.read(buffer) };
        if left == 0 || !Interrupt::is_readable(self.read.as_fd(), SILENCE)? {
            return Ok(0);
        }
        let wanted = buffer.len().min(left);
        let count = self.read.read(&mut buffer[..wanted])?;
        self.last_words = Some(left - count);
        Ok(count)
    }
}

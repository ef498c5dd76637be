//! Files of the captures: one for each end of each scene while the demo runs, one in the end.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use uroce::pcap::{Format, ReadError, Reader, Writer};

use crate::cli::output::Failure;

/// Names that are tried for a folder or file of ours before giving up.
const ATTEMPTS: u32 = 100;

/// A folder for the captures of the scenes, which is removed in the end, and the final capture.
pub(super) struct Captures {
    folder: PathBuf,
    /// Those that the final capture is made of, in their order.
    scenes: RefCell<Vec<PathBuf>>,
    path: PathBuf,
    file: File,
    /// The final capture is in a place of our own choice and holds nothing yet.
    leaves_nothing: Cell<bool>,
}

/// A recorded frame.
pub(super) struct Recorded {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) bytes: Vec<u8>,
}

impl Captures {
    /// Makes the folder, and the final capture at `target` or in the temporary folder. What is
    /// there already is never used unless the user names it, as it may be somebody else's.
    pub(super) fn new(target: Option<&Path>) -> Result<Self, Failure> {
        let (path, file) = match target {
            Some(path) => {
                let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
                (path.to_owned(), file)
            }
            None => first_free(".pcapng", |path| File::create_new(path))?,
        };
        let folder = first_free("", |path| fs::create_dir(path))?.0;
        let leaves_nothing = Cell::new(target.is_none());
        Ok(Self { folder, scenes: RefCell::default(), path, file, leaves_nothing })
    }

    /// The file for one end's view of a scene. Those of Alice, who sees both directions, make up
    /// the final capture.
    pub(super) fn file(&self, end: &str, scene: u32) -> PathBuf {
        let path = self.folder.join(format!("{end}-{scene}.pcapng"));
        if end == super::stage::ALICE {
            self.scenes.borrow_mut().push(path.clone());
        }
        path
    }

    /// Puts the scenes together into the final capture. Returns where that is.
    pub(super) fn finish(&self) -> Result<&Path, Failure> {
        self.join().map_err(|error| cannot_write(&self.path, &error))?;
        self.leaves_nothing.set(false);
        Ok(&self.path)
    }

    fn join(&self) -> std::io::Result<()> {
        let mut writer = Writer::named(BufWriter::new(&self.file), Format::PcapNg, "lo")?;
        for scene in self.scenes.borrow().iter() {
            for frame in frames(scene, 0)? {
                writer.write(frame.time, &[&frame.bytes])?;
            }
        }
        writer.flush()
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        // What cannot be removed is a few kilobytes in the temporary folder.
        let _ = fs::remove_dir_all(&self.folder);
        if self.leaves_nothing.get() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The frames of a capture that is perhaps still being written, without the first `skip`.
pub(super) fn frames(path: &Path, skip: usize) -> std::io::Result<Vec<Recorded>> {
    let damaged = |error: ReadError| match error {
        ReadError::Io(error) => error,
        other => std::io::Error::other(other.to_string()),
    };
    let mut reader = Reader::new(BufReader::new(File::open(path)?)).map_err(damaged)?;
    let mut frames = Vec::new();
    let mut number = 0;
    while let Some(record) = reader.next() {
        let record = match record {
            Ok(record) => record,
            // The rest is on its way.
            Err(ReadError::Cut { .. }) => break,
            Err(error) => return Err(damaged(error)),
        };
        number += 1;
        if number > skip {
            let time = record.time.map_or(0, |time| time.as_nanos());
            frames.push(Recorded { time, bytes: record.data.to_vec() });
        }
    }
    Ok(frames)
}

/// Makes something new in the temporary folder, under the first name that is free.
fn first_free<T>(
    ending: &str,
    make: impl Fn(&Path) -> std::io::Result<T>,
) -> Result<(PathBuf, T), Failure> {
    let (folder, process) = (std::env::temp_dir(), std::process::id());
    for attempt in 0..ATTEMPTS {
        let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
        let path = folder.join(format!("uroce-demo-{process}{suffix}{ending}"));
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot_write(&path, &error)),
        }
    }
    let folder = folder.display();
    Err(Failure::usage(format!("{folder} is full of uroce-demo-{process}*: remove some")))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!(
        "cannot write {}: {error}; choose another place with --pcap or TMPDIR",
        path.display()
    ))
}

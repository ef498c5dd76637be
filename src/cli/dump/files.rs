//! Reading files: what is whole is shown, what is damaged ends that file and is told.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use uroce::dissect::{self, Dissector};
use uroce::pcap::{Decompressed, Format, LinkType, ReadError, Reader};

use super::super::output::{Failure, complain};
use super::DumpArgs;
use super::live::{Live, Shared};
use super::output::{Output, Source};

/// The file is damaged or cut.
const DAMAGED: u8 = 1;
/// The file cannot be read.
const UNREADABLE: u8 = 2;

/// Shows all files and returns the exit status.
pub fn run(args: &DumpArgs, output: &mut Output<'_>) -> Result<u8, Failure> {
    let shared = Shared::new(output);
    let mut status = 0;
    for path in &args.files {
        status = status.max(one(args, path, &shared)?);
        if shared.is_interrupted()? {
            break;
        }
    }
    Ok(status)
}

fn one(args: &DumpArgs, path: &Path, shared: &Shared<'_, '_>) -> Result<u8, Failure> {
    let name = path.to_string_lossy();
    // Standard input without the buffer of the library, which hides what has arrived.
    let opened = match path.as_os_str() == "-" {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(path),
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) => return Ok(tell(&name, &error, UNREADABLE)),
    };
    let metadata = file.metadata();
    let length = metadata.as_ref().map_or(0, |metadata| metadata.len());
    if metadata.is_ok_and(|metadata| metadata.is_file() || metadata.is_dir()) {
        let bar = progress(args, length);
        let status = capture(args, &name, bar.wrap_read(file), shared);
        bar.finish_and_clear();
        return status;
    }
    capture(args, &name, Live::new(file, shared)?, shared)
}

/// A bar on standard error while nothing else is shown for long.
fn progress(args: &DumpArgs, length: u64) -> ProgressBar {
    if !args.summary || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn tell(name: &str, error: &dyn std::error::Error, status: u8) -> u8 {
    complain(&format!("{name}: {error}"));
    status
}

/// The exit status that an error of reading asks for.
fn status_of(error: &ReadError) -> u8 {
    match error {
        ReadError::Cut { .. } | ReadError::Damaged { .. } => DAMAGED,
        // A broken compressed file says so by these; files give no such errors themselves.
        ReadError::Io(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
            ) =>
        {
            DAMAGED
        }
        _ => UNREADABLE,
    }
}

fn capture(
    args: &DumpArgs,
    name: &str,
    read: impl Read,
    shared: &Shared<'_, '_>,
) -> Result<u8, Failure> {
    let opened = Decompressed::new(read).map_err(ReadError::from).and_then(Reader::new);
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return ended(name, &error, shared),
    };
    let is_blocks = reader.format() == Format::PcapNg;
    if let ([interface], false) = (reader.interfaces(), is_blocks)
        && !dissect::is_supported(interface.link_type)
    {
        return Ok(unsupported(name, interface.link_type));
    }
    let mut dissector = Dissector::with_ports(&args.port);
    let mut strangers = HashSet::new();
    let mut source = Source::new(name, is_blocks);
    let mut status = 0;
    while let Some(record) = reader.next() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                status = status.max(ended(name, &error, shared)?);
                break;
            }
        };
        let mut output = shared.output.borrow_mut();
        if !dissect::is_supported(record.link_type) && strangers.insert(record.link_type) {
            output.flush()?;
            status = unsupported(name, record.link_type);
        }
        let goes_on = output.record(&mut source, &mut dissector, &record)?;
        if !goes_on {
            break;
        }
    }
    // What was waited for in vain may have been standard output.
    shared.is_interrupted()?;
    shared.output.borrow_mut().end_of_file(&source)?;
    Ok(status)
}

/// Tells why no more comes, below what came, and gives the exit status.
fn ended(name: &str, error: &ReadError, shared: &Shared<'_, '_>) -> Result<u8, Failure> {
    if shared.is_interrupted()? {
        return Ok(0);
    }
    shared.output.borrow_mut().flush()?;
    Ok(tell(name, error, status_of(error)))
}

fn unsupported(name: &str, link_type: LinkType) -> u8 {
    complain(&format!(
        "{name}: link type {} is not supported; it knows Ethernet (1), raw IP (101), SLL \
         (113), ERF (197), InfiniBand (247) and SLL2 (276)",
        link_type.0
    ));
    UNREADABLE
}

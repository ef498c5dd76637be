//! What is shown: lines, blocks, bytes, objects or counts.

use std::io::{self, ErrorKind, StdoutLock, Write};

use uroce::dissect::json::{self, Position};
use uroce::dissect::text::{self, Line};
use uroce::dissect::{Dissector, Frame, RdmaPacket, Summary, explain_icrc, explain_value};
use uroce::pcap::{Record, Timestamp};

use super::super::output::Failure;
use super::super::text::{Palette, Tone, WIDTH, count};
use super::{DumpArgs, filter};

/// Bytes that are gathered before they are written.
const BATCH: usize = 64 * 1024;
/// The most columns for one address; longer ones lose their middle.
const MAX_HOST: usize = 19;

/// Where frames come from, and how far they have been read.
pub struct Source<'n> {
    name: &'n str,
    /// Interfaces are numbered in the file.
    has_interfaces: bool,
    /// Frames so far.
    frames: u64,
    /// When the first frame was captured.
    start: Option<Timestamp>,
    /// Its name stands above its lines, or need not.
    is_titled: bool,
}

impl<'n> Source<'n> {
    /// A source at its beginning.
    pub fn new(name: &'n str, has_interfaces: bool) -> Self {
        Self { name, has_interfaces, frames: 0, start: None, is_titled: false }
    }
}

/// Everything that goes to standard output.
pub struct Output<'a> {
    args: &'a DumpArgs,
    palette: Palette,
    stdout: StdoutLock<'static>,
    batch: Vec<u8>,
    /// Of the file that is being read.
    summary: Summary,
    /// Frames that were shown and are wrong.
    wrong: u64,
    /// Columns of the hosts so far.
    host_columns: [usize; 2],
    is_selective: bool,
    /// A file has been shown above.
    has_titles: bool,
}

impl<'a> Output<'a> {
    /// Nothing shown yet.
    pub fn new(args: &'a DumpArgs) -> Self {
        Self {
            args,
            palette: Palette::new(args.color),
            stdout: io::stdout().lock(),
            batch: Vec::with_capacity(2 * BATCH),
            summary: Summary::default(),
            wrong: 0,
            host_columns: [0; 2],
            is_selective: filter::is_selective(args),
            has_titles: false,
        }
    }

    /// Whether something wrong was shown.
    pub fn has_wrong(&self) -> bool {
        self.wrong > 0
    }

    /// Shows a frame; false if no later one of this source is wanted.
    pub fn record(
        &mut self,
        source: &mut Source<'_>,
        dissector: &mut Dissector,
        record: &Record<'_>,
    ) -> Result<bool, Failure> {
        source.frames += 1;
        source.start = source.start.or(record.time);
        let number = source.frames;
        let is_wanted = self.args.frames.is_none_or(|range| range.contains(number));
        // Those not wanted are looked at too: a connection of iWARP may begin there.
        let frame = dissector.dissect(record.link_type, record.original_length, record.data);
        if is_wanted {
            self.frame(source, record, &frame)?;
        }
        Ok(!self.args.frames.is_some_and(|range| range.ends_at(number)))
    }

    fn frame(
        &mut self,
        source: &mut Source<'_>,
        record: &Record<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), Failure> {
        if self.args.summary && !self.is_selective {
            self.summary.count(frame);
            return Ok(());
        }
        let (mut is_empty, mut is_selected) = (true, false);
        for packet in frame.packets() {
            is_empty = false;
            is_selected |= self.packet(source, record, frame, Some(&packet))?;
        }
        if is_empty {
            is_selected |= self.packet(source, record, frame, None)?;
        }
        if is_selected && self.args.summary {
            self.summary.count_frame();
        }
        Ok(())
    }

    /// Shows one packet if it is wanted, and returns whether it is.
    fn packet(
        &mut self,
        source: &mut Source<'_>,
        record: &Record<'_>,
        frame: &Frame<'_>,
        packet: Option<&RdmaPacket<'_>>,
    ) -> Result<bool, Failure> {
        if self.is_selective && !filter::selects(self.args, frame, packet) {
            return Ok(false);
        }
        if self.args.summary {
            self.summary.count_packet(frame, packet);
            return Ok(true);
        }
        self.wrong += u64::from(frame.is_wrong(packet));
        if self.args.json {
            let several = self.args.files.len() > 1;
            let position = Position {
                file: several.then_some(source.name),
                frame: source.frames,
                interface: source.has_interfaces.then_some(record.interface),
                time: record.time,
            };
            json::write(&mut self.batch, &position, frame, packet);
        } else {
            self.text(source, record, frame, packet);
        }
        if self.batch.len() >= BATCH {
            self.flush()?;
        }
        Ok(true)
    }

    fn text(
        &mut self,
        source: &mut Source<'_>,
        record: &Record<'_>,
        frame: &Frame<'_>,
        packet: Option<&RdmaPacket<'_>>,
    ) {
        self.title(source);
        let line = text::line(frame, packet);
        let number = match packet.and_then(|packet| packet.segment) {
            Some(segment) => format!("{}.{segment}", source.frames),
            None => source.frames.to_string(),
        };
        let head = format!("{number:>5} {:>10} ", elapsed(source.start, record.time));
        let line = self.fit(&head, &line);
        self.put(&line);
        if self.args.verbose {
            for line in text::block(frame, packet) {
                self.put(&cut(&line, WIDTH));
            }
        }
        if self.args.hex {
            let explained = packet.and_then(|packet| match self.args.my_icrc {
                Some(value) => explain_value(frame, packet, value),
                None => explain_icrc(frame, packet),
            });
            let lines = match explained {
                Some(explained) => text::explanation(&explained),
                None => text::frame_bytes(frame),
            };
            lines.iter().for_each(|line| self.put(line));
        }
    }

    /// Of several files each has its name above its first line.
    fn title(&mut self, source: &mut Source<'_>) {
        if source.is_titled || self.args.files.len() < 2 {
            return;
        }
        source.is_titled = true;
        if self.has_titles {
            self.put("");
        }
        self.has_titles = true;
        let title = self.palette.paint(Tone::Title, &format!("{}:", source.name));
        self.put(&title);
    }

    fn put(&mut self, line: &str) {
        self.batch.extend_from_slice(line.as_bytes());
        self.batch.push(b'\n');
    }

    /// The line in the columns that there are: what is wrong is kept, what the packet says is cut.
    fn fit(&mut self, head: &str, line: &Line) -> String {
        let hosts = self.hosts(&line.hosts);
        let space = |text: &str| if text.is_empty() { String::new() } else { format!(" {text}") };
        let (notable, wrong) = (space(&line.notable), space(&line.wrong));
        let columns = |text: &str| text.chars().count();
        let used = columns(head) + columns(&hosts) + columns(&notable) + columns(&wrong);
        let what = cut(&line.what, WIDTH.saturating_sub(used).max(8));
        let paint = |tone, text: &str| {
            if text.is_empty() { String::new() } else { self.palette.paint(tone, text) }
        };
        let whole = WIDTH.saturating_sub(columns(head) + columns(&hosts) + columns(&what));
        let notable = cut(&notable, whole);
        let wrong = cut(&wrong, whole.saturating_sub(columns(&notable)));
        format!(
            "{}{hosts}{what}{}{}",
            paint(Tone::Quiet, head),
            paint(Tone::Notable, &notable),
            paint(Tone::Bad, &wrong)
        )
    }

    fn hosts(&mut self, hosts: &[String; 2]) -> String {
        if hosts[0].is_empty() {
            return String::new();
        }
        let [source, destination] = [&hosts[0], &hosts[1]].map(|host| without_middle(host));
        for (columns, host) in self.host_columns.iter_mut().zip([&source, &destination]) {
            *columns = (*columns).max(host.chars().count());
        }
        let [left, right] = self.host_columns;
        format!("{source:>left$} > {destination:<right$} ")
    }

    /// Writes what has gathered, whole lines.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let written = self.stdout.write_all(&self.batch).and_then(|()| self.stdout.flush());
        self.batch.clear();
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::unread()),
            Err(error) => Err(Failure::usage(format!("cannot write to standard output: {error}"))),
        }
    }

    /// Ends a file: the rest of it, or its summary.
    pub fn end_of_file(&mut self, source: &Source<'_>) -> Result<(), Failure> {
        if !self.args.summary {
            return self.flush();
        }
        let summary = std::mem::take(&mut self.summary);
        self.wrong += summary.wrong;
        if self.args.json {
            json::write_summary(&mut self.batch, source.name, &summary);
        } else {
            self.summary_text(source.name, &summary);
        }
        self.flush()
    }

    fn summary_text(&mut self, name: &str, summary: &Summary) {
        let packets = count(summary.rdma_frames, "RDMA packet");
        let title = format!("{name}: {}, {packets}", count(summary.frames, "frame"));
        let title = self.palette.paint(Tone::Title, &title);
        self.put(&title);
        for (opcode, count) in summary.opcodes() {
            self.put(&format!("  {opcode:<36}{count:>12}"));
        }
        let (right, unchecked) = (summary.icrc_ok, summary.icrc_unchecked);
        self.put(&format!("  {:<36}{right:>12}", "ICRC right"));
        if summary.icrc_bad > 0 {
            let line = format!("  {:<36}{:>12}", "ICRC wrong", summary.icrc_bad);
            let line = self.palette.paint(Tone::Bad, &line);
            self.put(&line);
        }
        if unchecked > 0 {
            self.put(&format!("  {:<36}{unchecked:>12}", "ICRC unchecked"));
        }
        for (issue, count) in summary.issues() {
            let line = format!("  {:<36}{count:>12}  {}", issue.identifier(), issue.text());
            self.put(&cut(&line, WIDTH));
        }
    }

    /// Shows the rest.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// Seconds since the first frame.
fn elapsed(start: Option<Timestamp>, time: Option<Timestamp>) -> String {
    let (Some(start), Some(time)) = (start, time) else { return "-".to_owned() };
    let micros = time.micros_since(start);
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// The text, with its end left out if it has more columns.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept = text.chars().take(columns.saturating_sub(1));
    if columns == 0 { String::new() } else { kept.chain(['…']).collect() }
}

/// The text, with its middle left out if it has more columns than an address gets.
fn without_middle(text: &str) -> String {
    let length = text.chars().count();
    if length <= MAX_HOST {
        return text.to_owned();
    }
    let half = MAX_HOST / 2;
    let (front, back) = (text.chars().take(half), text.chars().skip(length - half));
    front.chain(['…']).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_their_columns() {
        assert_eq!((cut("12345", 5), cut("123456", 5)), ("12345".into(), "1234…".into()));
        assert_eq!(without_middle("192.168.100.200"), "192.168.100.200");
        let shown = without_middle("fd77:0:1234:5678:9abc:def0:1:2");
        assert_eq!((shown.chars().count(), shown.as_str()), (19, "fd77:0:12…:def0:1:2"));
    }
}

//! Everything that the demo prints, at a pace that can be read on a terminal.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use super::ladder;
use super::watch::Step;
use crate::cli::output::{self, Failure};
use crate::cli::text::{Palette, Tone, WIDTH, wrap};

/// Before the packets of an act are drawn, and after it.
const PAUSE: Duration = Duration::from_millis(350);
/// Between two lines of a drawing.
const STEP: Duration = Duration::from_millis(25);

/// See the module's text.
pub(super) struct Narrator {
    palette: Palette,
    paced: bool,
    silent: bool,
}

impl Narrator {
    /// One that speaks; it pauses for reading only if somebody reads as it speaks.
    pub(super) fn new(palette: Palette, paced: bool) -> Self {
        Self { palette, paced: paced && std::io::stdout().is_terminal(), silent: false }
    }

    /// One that says nothing.
    pub(super) fn silent() -> Self {
        let palette = Palette::new(crate::cli::text::ColorChoice::Never);
        Self { palette, paced: false, silent: true }
    }

    fn line(&self, text: &str) -> Result<(), Failure> {
        if self.silent { Ok(()) } else { output::print(text) }
    }

    /// What this is about.
    pub(super) fn prologue(&self) -> Result<(), Failure> {
        let title = "uroce demo: RDMA without RDMA hardware";
        self.line(&self.palette.paint(Tone::Title, title))?;
        self.say(
            "Two ends in one process talk RoCEv2 over real UDP sockets on the loopback interface: \
             no RDMA card, no kernel module, no root. Every arrow below is a packet that was sent, \
             read back from a capture.",
        )
    }

    /// An act's heading.
    pub(super) fn act(&self, number: u32, title: &str) -> Result<(), Failure> {
        self.rest(PAUSE);
        self.line(&format!("\n{}", self.palette.paint(Tone::Title, &format!("{number}. {title}"))))
    }

    /// A paragraph.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        wrap(text, WIDTH - 4).iter().try_for_each(|line| self.line(&format!("   {line}")))
    }

    /// Lines as they are, indented.
    pub(super) fn show(&self, lines: &[String]) -> Result<(), Failure> {
        lines.iter().try_for_each(|line| self.line(&format!("      {line}")))
    }

    /// A paragraph that tells what was checked.
    pub(super) fn verified(&self, text: &str) -> Result<(), Failure> {
        let lines = wrap(text, WIDTH - 6);
        for (index, line) in lines.iter().enumerate() {
            let mark = if index == 0 { "✔" } else { " " };
            self.line(&format!(
                "   {}",
                self.palette.paint(Tone::Good, &format!("{mark} {line}"))
            ))?;
        }
        Ok(())
    }

    /// Packets.
    pub(super) fn ladder(&self, steps: &[Step]) -> Result<(), Failure> {
        self.rest(PAUSE);
        self.line("")?;
        for line in ladder::draw(steps, self.palette) {
            self.line(&line)?;
            self.rest(STEP);
        }
        self.line("")
    }

    /// Where the capture is and what to do next.
    pub(super) fn epilogue(&self, capture: &Path, seconds: f64) -> Result<(), Failure> {
        self.rest(PAUSE);
        let time = if seconds < 0.1 {
            format!("{:.0} ms", seconds * 1e3)
        } else {
            format!("{seconds:.1} s")
        };
        let title = format!("\nAll of it came out right, in {time}.");
        self.line(&self.palette.paint(Tone::Title, &title))?;
        self.line(&format!("   The capture, for Wireshark or tshark: {}", capture.display()))?;
        self.line("   Next:")?;
        let next = next_steps();
        let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        for (command, what) in next {
            self.line(&format!("     {command:<width$}  {what}"))?;
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "for the reader's eyes; no protocol waits")]
    fn rest(&self, pause: Duration) {
        if self.paced {
            std::thread::sleep(pause);
        }
    }
}

/// Commands to try, as the user would type them here, and what they do.
fn next_steps() -> Vec<(String, &'static str)> {
    let by_cargo = std::env::var_os("CARGO_MANIFEST_DIR").is_some();
    let program = if by_cargo { "cargo run --release --" } else { "uroce" };
    let mut next = vec![
        (format!("{program} devices"), "the devices of this host"),
        (format!("{program} pingpong -d lo"), "a server, in one terminal,"),
        (
            format!("{program} pingpong -d lo localhost -c --fault loss=5%"),
            "its client, in another",
        ),
        (format!("{program} demo --seed 2"), "other losses"),
    ];
    if super::super::has_subcommand("sim") {
        next.push((format!("{program} sim"), "worlds made from a seed"));
    }
    next.push(("cargo run --example write".to_owned(), "an RDMA WRITE in 40 lines"));
    next
}

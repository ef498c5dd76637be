//! Packets as a drawing.
//!
//! ```text
//!               Alice                                                    Bob
//!     0.000 ms  │── RDMA WRITE first, 1024 B, PSN 1004 ────────────────▶│
//!     0.031 ms  │── RDMA WRITE middle, 1024 B, PSN 1005 ──────────╳     │  lost
//!     0.090 ms  │◀──────────────────── NAK: PSN 1005 is missing ────────│
//! ```

use uroce::wire::{Message, NakCode, SendTail, Syndrome};

use super::stage::{ALICE, BOB};
use super::watch::{Arrival, Step};
use crate::cli::text::{Palette, Tone};

/// Columns between the two lines.
const LANE: usize = 56;
/// Columns of the time, with its unit.
const CLOCK: usize = 13;
/// Packets of one kind in a row, or pairs of request and answer, that are drawn one by one.
const RUN: usize = 3;
/// Lines of a drawing at most.
const MOST: usize = 44;

/// Draws a conversation, one line a packet, long runs of the same abridged.
pub(super) fn draw(steps: &[Step], palette: Palette) -> Vec<String> {
    let mut lines = vec![palette.paint(Tone::Title, &heading())];
    let start = steps.first().map_or(0, |step| step.time);
    let mut rest = steps;
    while let Some(first) = rest.first() {
        if lines.len() >= MOST {
            lines.push(note_in_lane(&format!("… {} more, all in the capture …", rest.len())));
            break;
        }
        let (period, repeats) = repetition(rest);
        let abridged = repeats > RUN;
        let shown = if abridged { period } else { period * repeats };
        lines.extend(rest[..shown].iter().map(|step| line(step, start, palette)));
        if abridged {
            let text = more(period, repeats - 1, first);
            lines.push(palette.paint(Tone::Quiet, &note_in_lane(&text)));
        }
        rest = &rest[period * repeats..];
    }
    lines
}

fn heading() -> String {
    format!("{:CLOCK$}  {ALICE}{:>width$}", "", BOB, width = LANE + 2 - ALICE.len())
}

/// How the packets begin: so many of them form a group that comes so many times. A group is a
/// packet, or a request and an answer that nothing happened to.
fn repetition(steps: &[Step]) -> (usize, usize) {
    let alike = |one: &Step, other: &Step| kind(one) == kind(other);
    let run = steps.iter().take_while(|step| alike(step, &steps[0])).count();
    let [first, second, ..] = steps else { return (1, run) };
    let plain = [first, second].iter().all(|step| note(step).is_none());
    let pairs = steps.chunks_exact(2);
    let pairs = pairs.take_while(|pair| alike(&pair[0], first) && alike(&pair[1], second)).count();
    if run == 1 && plain && pairs > RUN { (2, pairs) } else { (1, run) }
}

/// What must be equal for packets to be drawn as a run.
fn kind(step: &Step) -> (bool, &'static str, Arrival, bool) {
    (step.from_alice, step.opcode(), step.arrival, step.resent)
}

fn more(period: usize, count: usize, first: &Step) -> String {
    match note(first) {
        _ if period == 2 => format!("… {count} more such pairs …"),
        Some((_, note)) => format!("… {count} more: {note} …"),
        None => format!("… {count} more …"),
    }
}

fn note_in_lane(text: &str) -> String {
    format!("{:CLOCK$}  │{text:^LANE$}│", "")
}

fn line(step: &Step, start: u64, palette: Palette) -> String {
    let time = format!("{:>9.3} ms ", step.time.saturating_sub(start) as f64 / 1e6);
    let note = note(step);
    let tone = note.as_ref().map(|(tone, _)| *tone).or_else(|| tone(step));
    let arrow = arrow(step);
    let arrow = tone.map_or_else(|| arrow.clone(), |tone| palette.paint(tone, &arrow));
    let note =
        note.map_or_else(String::new, |(tone, text)| format!("  {}", palette.paint(tone, text)));
    format!("{}  │{arrow}│{note}", palette.paint(Tone::Quiet, &format!("{time:>CLOCK$}")))
}

fn arrow(step: &Step) -> String {
    /// Where the arrow of a lost packet ends.
    const GAP: usize = 5;
    let text = words(step);
    let shaft = |taken: usize| "─".repeat(LANE.saturating_sub(text.chars().count() + taken));
    let lost = matches!(step.arrival, Arrival::Lost | Arrival::Missing);
    match (step.from_alice, lost) {
        (true, false) => format!("── {text} {}▶", shaft(5)),
        (true, true) => format!("── {text} {}╳{}", shaft(5 + GAP), " ".repeat(GAP)),
        (false, false) => format!("◀{} {text} ──", shaft(5)),
        (false, true) => format!("{}╳{} {text} ──", " ".repeat(GAP), shaft(5 + GAP)),
    }
}

/// What there is to say beside the packet.
fn note(step: &Step) -> Option<(Tone, &'static str)> {
    match (step.arrival, step.resent) {
        (Arrival::Lost, true) => Some((Tone::Bad, "sent again, lost again")),
        (Arrival::Lost, false) => Some((Tone::Bad, "lost")),
        (Arrival::Missing, _) => Some((Tone::Bad, "lost, not by the plan")),
        (Arrival::OutOfOrder, false) => Some((Tone::Notable, "out of order: dropped")),
        (Arrival::OutOfOrder, true) => Some((Tone::Notable, "out of order again")),
        (Arrival::Duplicate, _) => Some((Tone::Notable, "again; Bob had it")),
        (Arrival::Arrived, true) => Some((Tone::Notable, "sent again")),
        (Arrival::Arrived, false) => None,
    }
}

/// The colour of a packet that needs no note.
fn tone(step: &Step) -> Option<Tone> {
    match step.headers.message {
        Message::Acknowledge(aeth) => Some(match aeth.syndrome.meaning() {
            Syndrome::Ack(_) => Tone::Good,
            _ => Tone::Bad,
        }),
        _ => None,
    }
}

/// A packet in words.
pub(super) fn words(step: &Step) -> String {
    let psn = step.headers.psn;
    let length = step.length;
    match step.headers.message {
        Message::Acknowledge(aeth) => match aeth.syndrome.meaning() {
            Syndrome::Ack(_) => format!("ACK up to PSN {psn}"),
            Syndrome::Nak(NakCode::PsnSequenceError) => format!("NAK: PSN {psn} is missing"),
            Syndrome::Nak(code) => format!("NAK: {}, PSN {psn}", uroce::words::nak(code)),
            Syndrome::RnrNak(timer) => {
                format!("RNR NAK: no receive, wait {} µs, PSN {psn}", timer.nanos() / 1000)
            }
            Syndrome::Reserved(byte) => format!("syndrome 0x{byte:02x}, PSN {psn}"),
        },
        Message::AtomicAcknowledge(_, original) => format!("it was {original}, PSN {psn}"),
        Message::FetchAdd(atomic) => format!("FETCH AND ADD {}, PSN {psn}", atomic.swap_or_add),
        Message::CompareSwap(atomic) => {
            let (compare, swap) = (atomic.compare, atomic.swap_or_add);
            format!("COMPARE AND SWAP if {compare} then {swap}, PSN {psn}")
        }
        Message::ReadRequest(reth) => format!("RDMA READ of {} B, PSN {psn}", reth.length),
        _ => format!("{}, {length} B, PSN {psn}", name(step)),
    }
}

/// The name of a packet with payload.
fn name(step: &Step) -> &'static str {
    match step.headers.message {
        Message::SendFirst => "SEND first",
        Message::SendMiddle => "SEND middle",
        Message::SendLast(SendTail::Plain) => "SEND last",
        Message::SendOnly(SendTail::Plain) => "SEND",
        Message::WriteFirst(_) => "RDMA WRITE first",
        Message::WriteMiddle => "RDMA WRITE middle",
        Message::WriteLast(None) => "RDMA WRITE last",
        Message::WriteOnly(_, None) => "RDMA WRITE",
        Message::ReadResponseFirst(_) => "READ response first",
        Message::ReadResponseMiddle => "READ response middle",
        Message::ReadResponseLast(_) => "READ response last",
        Message::ReadResponseOnly(_) => "READ response",
        _ => step.opcode(),
    }
}

#[cfg(test)]
mod tests {
    use uroce::wire::{Aeth, Credits, Headers, Msn, Psn, Qpn, Service};

    use super::*;
    use crate::cli::text::{ColorChoice, WIDTH};

    fn step(psn: u32, message: Message, arrival: Arrival, resent: bool) -> Step {
        let headers = Headers::request(Service::Rc, message, Qpn::new(17), Psn::new(psn));
        let from_alice = !matches!(message, Message::Acknowledge(_));
        let time = u64::from(psn) * 1_500_000;
        Step { time, from_alice, headers, length: 1024, frame: 1100, arrival, resent }
    }

    fn nak() -> Message {
        let syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
        Message::Acknowledge(Aeth { syndrome, msn: Msn::new(0) })
    }

    fn plain() -> Palette {
        Palette::new(ColorChoice::Never)
    }

    #[test]
    fn lines_are_aligned_and_notes_are_beside_them() {
        let ack = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: Msn::new(1) };
        let lines = draw(
            &[
                step(10, Message::SendFirst, Arrival::Arrived, false),
                step(11, Message::SendLast(SendTail::Plain), Arrival::Lost, false),
                step(11, nak(), Arrival::Arrived, false),
                step(11, Message::SendLast(SendTail::Plain), Arrival::Arrived, true),
                step(11, Message::Acknowledge(ack), Arrival::Lost, false),
            ],
            plain(),
        );
        let expected = "               Alice                                                  Bob
    0.000 ms   │── SEND first, 1024 B, PSN 10 ─────────────────────────▶│
    1.500 ms   │── SEND last, 1024 B, PSN 11 ─────────────────────╳     │  lost
    1.500 ms   │◀───────────────────────────── NAK: PSN 11 is missing ──│
    1.500 ms   │── SEND last, 1024 B, PSN 11 ──────────────────────────▶│  sent again
    1.500 ms   │     ╳────────────────────────────── ACK up to PSN 11 ──│  lost";
        assert_eq!(lines.join("\n"), expected);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn long_runs_are_abridged_and_none_of_them_hides_a_loss() {
        let mut steps: Vec<Step> =
            (0..20).map(|psn| step(psn, Message::WriteMiddle, Arrival::Arrived, false)).collect();
        steps[9].arrival = Arrival::Lost;
        let lines = draw(&steps, plain());
        assert_eq!(lines.len(), 6, "{lines:#?}");
        assert!(lines[2].contains("… 8 more …") && lines[3].ends_with("lost"), "{lines:#?}");
        assert!(lines[5].contains("… 9 more …"), "{lines:#?}");
    }

    #[test]
    fn uneventful_pairs_are_abridged_too() {
        let ack = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: Msn::new(1) };
        let pair = |psn, arrival| {
            [
                step(psn, Message::SendOnly(SendTail::Plain), arrival, false),
                step(psn, Message::Acknowledge(ack), Arrival::Arrived, false),
            ]
        };
        let mut steps: Vec<Step> = (0..9).flat_map(|psn| pair(psn, Arrival::Arrived)).collect();
        steps.splice(10..10, pair(5, Arrival::Lost).into_iter().take(1));
        let lines = draw(&steps, plain());
        assert!(lines[3].contains("… 4 more such pairs …"), "{lines:#?}");
        assert!(lines[4].ends_with("lost") && lines[7].contains("3 more such"), "{lines:#?}");
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn a_drawing_has_an_end() {
        let steps: Vec<Step> = (0..200)
            .map(|psn| step(psn, Message::WriteMiddle, Arrival::Arrived, psn % 2 == 0))
            .collect();
        let lines = draw(&steps, plain());
        assert_eq!(lines.len(), MOST + 1);
        assert!(lines[MOST].contains("157 more, all in the capture"), "{}", lines[MOST]);
    }
}
